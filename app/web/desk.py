"""The operator's desk over HTTP: what is unclear, all there is about one action, and what a person says of it."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.web.views import Started
from app.web.who import Who
from transactions.desk import Desk, File, Outcome

router = APIRouter()


class _View(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class UnknownView(_View):
    """A row of `surefoot.unknown_actions`. `can`: the outcomes that can be said now; `next`: what to do, in words."""

    action_id: str
    run_id: str
    run_state: str
    agent: str
    tool: str
    safety: str
    state: str
    attempt: int
    attempts_max: int
    since: datetime
    attempt_deadline_at: datetime
    why: str
    request: JsonValue
    verifications: int
    last_verdict: str | None
    last_evidence: JsonValue
    last_asked_at: datetime | None
    asked_again_at: datetime | None
    waits_for: str
    can: list[Outcome]
    next: str
    failure: str | None = Field(description="the class of the last failure, of `transactions.failures`")


class ContradictionView(_View):
    """A row of `surefoot.contradictions`. `result` is what was answered against `counts`, by which the run goes."""

    receipt_id: int
    action_id: str
    run_id: str
    agent: str
    tool: str
    state: str
    since: datetime
    why: str
    attempt: int
    source: str
    worker_id: str
    result: JsonValue
    counts: JsonValue
    decided: str | None
    decided_by: str | None
    next: str


class DeskView(_View):
    unknown: list[UnknownView]
    contradictions: list[ContradictionView]

    @classmethod
    def of(cls, desk: Desk) -> Self:
        return cls(
            unknown=[UnknownView.model_validate(dict(row)) for row in desk.unknown],
            contradictions=[ContradictionView.model_validate(dict(row)) for row in desk.contradictions],
        )


class AttemptView(_View):
    attempt: int
    worker_id: str
    claimed_at: datetime
    deadline_at: datetime
    outcome: str | None
    detail: str | None
    finished_at: datetime | None


class VerificationView(_View):
    n: int
    attempt: int
    verdict: str
    evidence: JsonValue
    worker_id: str
    at: datetime


class ReceiptView(_View):
    receipt_id: int
    attempt: int
    source: str
    result: JsonValue
    contradiction: str | None
    worker_id: str
    at: datetime


class DecisionView(_View):
    attempt: int
    outcome: str
    decided_by: str
    authenticated: bool
    reason: str | None
    result: JsonValue
    evidence: JsonValue
    at: datetime


class ActionView(_View):
    """All there is about one action. `unknown`: while nobody knows its outcome."""

    action_id: str
    run_id: str
    run_state: str
    agent: str
    tool: str
    safety: str
    state: str
    reason: str | None
    request: JsonValue
    result: JsonValue
    unknown: UnknownView | None
    attempts: list[AttemptView]
    verifications: list[VerificationView]
    receipts: list[ReceiptView]
    decisions: list[DecisionView]
    contradictions: list[ContradictionView]

    @classmethod
    def of(cls, file: File) -> Self:
        def rows(name: str) -> list[dict[str, Any]]:
            return [dict(row) for row in getattr(file, name)]

        lists = ("attempts", "verifications", "receipts", "decisions", "contradictions")
        unknown = None if file.unknown is None else dict(file.unknown)
        return cls.model_validate({**file.action, "unknown": unknown, **{name: rows(name) for name in lists}})


class Say(BaseModel):
    model_config = ConfigDict(extra="forbid")
    outcome: Outcome
    reason: str | None = None
    result: JsonValue = Field(None, description="of `succeeded`: what the tool would have answered")
    evidence: JsonValue = Field(None, description="how one knows, such as the id that the other side gave it")


@router.get("/actions")
async def desk(who: Who, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> DeskView:
    return DeskView.of(await who.desk(limit=limit))


@router.post("/actions/{action_id:path}/decision")
async def settle(who: Who, action_id: str, body: Say) -> Started:
    run_id = await who.settle(action_id, body.outcome, reason=body.reason, result=body.result, evidence=body.evidence)
    return Started(run_id=run_id, state=(await who.status(run_id))["state"])


@router.post("/actions/{action_id:path}/ask", status_code=202)
async def ask_again(who: Who, action_id: str) -> Started:
    run_id = await who.ask_again(action_id)
    return Started(run_id=run_id, state=(await who.status(run_id))["state"])


@router.get("/actions/{action_id:path}")
async def show(who: Who, action_id: str) -> ActionView:
    return ActionView.of(await who.action(action_id))
