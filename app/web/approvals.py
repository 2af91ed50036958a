"""Approvals over HTTP: what waits for a decision, and deciding."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from app.web.views import Started
from app.web.who import Who

router = APIRouter()


class PendingView(BaseModel):
    """What is asked, of whom, and exactly what it is bound to. `agreed`: who has approved already, where several must.

    `difference`: what has changed since it was approved before, each as `[then, now]`.
    """

    approval_id: str
    run_id: str
    agent: str
    tool: str
    policy: str
    approvers: list[str]
    people_min: int
    not_requester: bool
    requester: str | None
    agreed: list[str]
    arguments: JsonValue
    binding: JsonValue
    supersedes: str | None
    difference: JsonValue
    requested_at: datetime
    expires_at: datetime
    escalates_at: datetime | None


class SaidView(BaseModel):
    decision: str
    decided_by: str
    in_right_of: str
    authenticated: bool
    reason: str | None
    at: datetime


class ApprovalView(BaseModel):
    """One approval, whatever became of it."""

    approval_id: str
    run_id: str
    action_id: str
    tool: str
    state: str
    arguments: JsonValue
    binding: JsonValue
    terms: JsonValue
    approvers: list[str] | None
    people_min: int
    not_requester: bool
    escalates_at: datetime | None
    escalates_to: list[str] | None
    requester: str | None
    supersedes: str | None
    difference: JsonValue
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    reason: str | None
    decisions: list[SaidView]


class Decide(BaseModel):
    model_config = ConfigDict(extra="forbid")
    decision: Literal["approve", "reject"]
    reason: str | None = None
    changes: JsonValue = Field(None, description="approve this instead: some of the arguments, or what the tool edits")

    @field_validator("changes")
    @classmethod
    def _changes_something(cls, value: JsonValue) -> JsonValue:
        if value is None:
            raise ValueError("null changes nothing: leave it out to approve it as it is")
        return value


@router.get("/approvals")
async def pending(who: Who, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[PendingView]:
    return [PendingView.model_validate(dict(row)) for row in await who.pending_approvals(limit=limit)]


@router.post("/approvals/{approval_id:path}/decision")
async def decide(who: Who, approval_id: str, body: Decide) -> Started:
    run_id = await who.decide(approval_id, body.decision, reason=body.reason, changes=body.changes)
    return Started(run_id=run_id, state=(await who.status(run_id))["state"])


@router.get("/approvals/{approval_id:path}")
async def show(who: Who, approval_id: str) -> ApprovalView:
    return _view(await who.approval(approval_id))


@router.get("/runs/{run_id}/approvals")
async def of_run(who: Who, run_id: str) -> list[ApprovalView]:
    return [_view(row) for row in await who.approvals_of(run_id)]


def _view(row: Mapping[str, Any]) -> ApprovalView:
    return ApprovalView.model_validate({**row, "decisions": [dict(said) for said in row["decisions"]]})
