"""Approvals over HTTP: what waits for a decision, and deciding."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, JsonValue

from app.web.views import Started
from app.web.who import Who

router = APIRouter()


class ApprovalView(BaseModel):
    """What is asked, of whom, and exactly what it is bound to."""

    approval_id: str
    run_id: str
    agent: str
    tool: str
    approver: str
    arguments: JsonValue
    binding: JsonValue
    requested_at: datetime
    expires_at: datetime


class Decide(BaseModel):
    model_config = ConfigDict(extra="forbid")
    decision: Literal["approve", "reject"]
    reason: str | None = None


@router.get("/approvals")
async def pending(who: Who, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[ApprovalView]:
    return [ApprovalView.model_validate(dict(row)) for row in await who.pending_approvals(limit=limit)]


@router.post("/approvals/{approval_id:path}/decision")
async def decide(who: Who, approval_id: str, body: Decide) -> Started:
    run_id = await who.decide(approval_id, body.decision, reason=body.reason)
    return Started(run_id=run_id, state=(await who.status(run_id))["state"])
