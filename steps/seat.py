"""What the calls of one execution of a segment share, and which response is being worked on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart

from steps.bench import Bench
from steps.effects import Effects
from steps.journal import Done, Journal
from steps.spec import Spec
from steps.tools import Tools
from transactions import ActionState, Execution, FailureClass, Run


@dataclass(slots=True)
class Turns:
    """Which response is being worked on, and what happened to its calls so far in this execution."""

    base: int
    responses: int = 0
    response: ModelResponse | None = None
    # Whether the run has an artifact that its model may read: fixed when the segment began, and by each recorded step.
    artifacts: bool = False
    deferred: bool = False
    failed: str | None = None

    @property
    def number(self) -> int:
        return self.base + self.responses

    def begin(self, response: ModelResponse, *, new: bool) -> None:
        """Turn to a response: a new one from the model, or the one whose calls are being resumed."""
        self.response = response
        self.responses += new
        self.deferred = False
        self.failed = None

    def call(self, call_id: str) -> tuple[int, ToolCallPart]:
        """The index of a call among the calls of its response, and the call."""
        assert self.response is not None, "a call belongs to a response"
        calls = [part for part in self.response.parts if isinstance(part, ToolCallPart)]
        return next((i, part) for i, part in enumerate(calls) if part.tool_call_id == call_id)


@dataclass(frozen=True, slots=True)
class Seat:
    """What the tools of one execution of a segment share."""

    bench: Bench
    effects: Effects
    journal: Journal
    execution: Execution
    run: Run
    agent: str
    specs: Mapping[str, Spec]
    turns: Turns
    inline_wait_s: float
    built_in: Tools[Any]
    inline_bytes: int
    withheld: set[str] = field(default_factory=set[str])


def settled_value(row: Mapping[str, Any], *, mine: bool = False, shared: bool = False) -> Done | None:
    """The value of a settled action; how it came about, from its first receipt."""
    state = ActionState(row["state"])
    if not state.settled:
        return None
    verified = row["receipt_source"] == "verification" and not shared
    how = "verified" if verified else "ran" if mine else "reused"
    if state is ActionState.SUCCEEDED:
        revised = {} if row["revises"] is None else {"revised": row["request"]}
        kept = {"artifacts": True} if row["has_artifacts"] else {}
        return Done({"value": row["result"], **revised, **kept}, how)
    return Done({"retry" if row["failure"] == FailureClass.INVALID_INPUT else "failed": row["reason"]}, how)
