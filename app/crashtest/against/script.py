"""The scripted model as pydantic-ai takes it. It decides from the messages and holds no state of its own."""

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from app.crashtest.against import task
from steps import turns_so_far


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    tool = task.think(turns_so_far(messages))
    reference = _reference(messages)
    if tool is None:
        return ModelResponse(parts=[TextPart(f"Order {reference} is taken and published.")])
    return ModelResponse(parts=[ToolCallPart(tool, {"reference": reference})])


def _reference(messages: list[ModelMessage]) -> str:
    """The prompt, which is the order's reference."""
    prompts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return next(str(part.content) for part in prompts if isinstance(part, UserPromptPart))


def model() -> FunctionModel:
    return FunctionModel(scripted, model_name="script")
