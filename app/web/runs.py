"""Runs over HTTP: start, look, cancel."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.web.views import Started
from app.web.who import Who
from transactions import RunState

router = APIRouter()


class StartRun(BaseModel):
    model_config = ConfigDict(extra="forbid")
    agent: str
    input: JsonValue
    priority: int = Field(0, description="from -100 to 100; the higher goes first")
    not_before: datetime | None = Field(None, description="when it may begin, with an offset; null: at once")


class RunView(BaseModel):
    """One row of `surefoot.run_status`."""

    run_id: str
    agent: str
    agent_version: str | None
    state: str
    phase: str | None = Field(description="where it is, in words for people")
    waiting_for: list[str] | None
    reason: str | None
    turns: int
    segment: int
    unsettled_actions: int
    open_deliveries: int
    output: JsonValue
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    what_to_do: str | None = Field(description="what a person has to do for it, if anything")
    priority: int
    due_at: datetime | None = Field(description="of a run that is delayed: when it may begin")
    queued_why: str | None = Field(description="why a run that is queued has not begun")


class StuckView(BaseModel):
    """One row of `surefoot.stuck_runs`. Times in seconds."""

    run_id: str
    agent: str
    state: str
    since: datetime
    limit_s: float
    seconds: float
    why: str
    what_to_do: str


class EventView(BaseModel):
    seq: int
    kind: str
    data: JsonValue
    generation: int
    worker_id: str | None
    at: datetime


class EventPage(BaseModel):
    """`next_after`: give it as `after` for the next page."""

    events: list[EventView]
    next_after: int


class Cancel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str = "asked for"


@router.post("/runs", status_code=202)
async def start(who: Who, body: StartRun, idempotency_key: Annotated[str | None, Header()] = None) -> Started:
    run_id = await who.start(
        body.agent, body.input, key=idempotency_key, priority=body.priority, not_before=body.not_before
    )
    return Started(run_id=run_id, state=(await who.status(run_id))["state"])


@router.get("/runs")
async def list_runs(
    who: Who, state: RunState | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> list[RunView]:
    return [RunView.model_validate(dict(row)) for row in await who.runs(state=state, limit=limit)]


@router.get("/runs/stuck")  # before the next, which would take it for a run's id
async def stuck(who: Who, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[StuckView]:
    return [StuckView.model_validate(dict(row)) for row in await who.stuck(limit=limit)]


@router.get("/runs/{run_id}")
async def show(who: Who, run_id: str) -> RunView:
    return RunView.model_validate(dict(await who.status(run_id)))


@router.get("/runs/{run_id}/events")
async def events(
    who: Who, run_id: str, after: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> EventPage:
    rows = [EventView.model_validate(dict(row)) for row in await who.events(run_id, after=after, limit=limit)]
    return EventPage(events=rows, next_after=rows[-1].seq if rows else after)


@router.post("/runs/{run_id}/cancel")
async def cancel(who: Who, run_id: str, body: Cancel | None = None) -> RunView:
    await who.cancel(run_id, reason=(body or Cancel()).reason)
    return RunView.model_validate(dict(await who.status(run_id)))
