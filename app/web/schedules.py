"""Schedules over HTTP."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, JsonValue

from app.web.who import Who
from transactions.schedules import Missed, Overlap

router = APIRouter()


class SetSchedule(BaseModel):
    model_config = ConfigDict(extra="forbid")
    agent: str
    input: JsonValue
    cron: str
    time_zone: str = "UTC"
    priority: int = 0
    missed: Missed = "last"
    overlap: Overlap = "skip"


class ScheduleView(BaseModel):
    """What was set, when it is due next (null: it is paused, or never), and what became of it the last time."""

    name: str
    agent: str
    input: JsonValue
    cron: str
    time_zone: str
    principal: str
    priority: int
    missed: str
    overlap: str
    enabled: bool
    next_at: datetime | None
    last_at: datetime | None
    last_run_id: str | None
    last_why: str | None


@router.get("/schedules")
async def schedules(who: Who) -> list[ScheduleView]:
    return [ScheduleView.model_validate(dict(row)) for row in await who.schedules()]


@router.put("/schedules/{name}", status_code=204)
async def set_schedule(who: Who, name: str, body: SetSchedule) -> None:
    given = body.model_dump()
    await who.set_schedule(name, given.pop("agent"), given.pop("input"), **given)


@router.delete("/schedules/{name}", status_code=204)
async def remove(who: Who, name: str) -> None:
    await who.remove_schedule(name)


@router.post("/schedules/{name}/pause", status_code=204)
async def pause(who: Who, name: str) -> None:
    await who.pause_schedule(name)


@router.post("/schedules/{name}/resume", status_code=204)
async def resume(who: Who, name: str) -> None:
    await who.resume_schedule(name)
