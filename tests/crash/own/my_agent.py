"""An agent as a user writes it: it posts one letter, once a clerk has agreed."""

from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from steps import Absent, Action, Approval, Found, Tools, durable, turns_so_far
from transactions import Run

LETTERS = Path(__file__).with_name("letters.log")
tools = Tools[None](id="post")


async def posted(action: Action[None], text: str) -> Found[str] | Absent:
    line = f"{action.run.run_id} {text}"
    return Found(line) if line in LETTERS.read_text().splitlines() else Absent()


@tools.effect(verify=posted, approval=Approval[Any, [str]](by="role:clerk"), attempt_s=2.0)
async def post_letter(action: Action[None], text: str) -> str:
    """Post it."""
    with LETTERS.open("a") as letters:
        letters.write(f"{action.run.run_id} {text}\n")
    return text


def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if turns_so_far(messages):
        return ModelResponse(parts=[TextPart("posted")])
    return ModelResponse(parts=[ToolCallPart("post_letter", {"text": "hello"})])


def make_deps(run: Run) -> None:
    LETTERS.touch()


post = durable(
    Agent(FunctionModel(says, model_name="script"), name="post", deps_type=type(None), toolsets=[tools]),
    version="1",
    deps=make_deps,
    input=str,
)
