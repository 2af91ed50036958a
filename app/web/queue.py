"""The queue over HTTP: what waits and why, and limits."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.web.who import Who

router = APIRouter()


class QueueView(BaseModel):
    """One row of `surefoot.queue_status`: how much of an agent runs, waits for its turn and is delayed."""

    agent: str
    running: int
    waiting: int
    delayed: int
    oldest_at: datetime | None
    next_due_at: datetime | None
    why: str | None = Field(description="why what waits is not admitted")


class SetLimit(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tenant: str | None = Field(None, description="null: of all tenants together")
    agent: str | None = Field(None, description="null: of all agents")
    running_max: int | None = None
    queued_max: int | None = None
    starts_max: int | None = None
    period_s: float | None = None


class LimitView(BaseModel):
    """`of_tenant` and `agent`: null for all of them together."""

    of_tenant: str | None
    agent: str | None
    running_max: int | None
    queued_max: int | None
    starts_max: int | None
    period_s: float | None
    changed_at: datetime
    changed_by: str


@router.get("/queue")
async def queue(who: Who) -> list[QueueView]:
    return [QueueView.model_validate(dict(row)) for row in await who.queue()]


@router.get("/limits")
async def limits(who: Who, everywhere: bool = False) -> list[LimitView]:
    return [LimitView.model_validate(dict(row)) for row in await who.limits(everywhere=everywhere)]


@router.put("/limits", status_code=204)
async def set_limit(who: Who, body: SetLimit) -> None:
    await who.set_limit(**body.model_dump())


@router.delete("/limits", status_code=204)
async def unset_limit(who: Who, tenant: str | None = None, agent: str | None = None) -> None:
    await who.unset_limit(tenant=tenant, agent=agent)
