"""The shop's agent: its scripted model, its tools and its tables."""

from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_core import to_jsonable_python

from shop_agent.models import metadata
from shop_agent.tools import Deps, make_deps, tools
from steps import RunLimits, durable, model_from_env, tool_returns, turns_so_far


class Wish(BaseModel):
    customer: str
    item: str
    quantity: int


def prompt(wish: Wish) -> str:
    return f"{wish.customer} wants {wish.quantity} of {wish.item}."


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look, place, reserve, say so; decided by what was seen so far."""
    asked = next(part for message in messages for part in message.parts if isinstance(part, UserPromptPart))
    customer, _, quantity, _, item = str(asked.content).rstrip(".").split()
    returned = tool_returns(messages)

    def result(tool: str) -> Any:
        return to_jsonable_python(returned[tool].content)

    match turns_so_far(messages):
        case 0:
            return ModelResponse(parts=[ToolCallPart("stock", {"item": item})])
        case 1:
            order = {"customer": customer, "items": {item: min(int(quantity), result("stock")), "bag": 1}}
            return ModelResponse(parts=[ToolCallPart("place_order", order)])
        case 2:
            return ModelResponse(parts=[ToolCallPart("reserve", {"order_id": result("place_order")["order_id"]})])
        case _:
            return ModelResponse(parts=[TextPart(f"Reserved under number {result('reserve')['number']}.")])


shop = durable(
    Agent(model_from_env(script), name="shop", deps_type=Deps, toolsets=[tools]),
    version="1",
    deps=make_deps,
    input=Wish,
    prompt=prompt,
    tables=metadata,
    limits=RunLimits(segment_turns_max=3),
)
