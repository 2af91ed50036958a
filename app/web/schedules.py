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


@router.put("/schedules/{schedule}", status_code=204)
async def set_schedule(who: Who, schedule: str, body: SetSchedule) -> None:
    given = body.model_dump()
    await who.set_schedule(schedule, given.pop("agent"), given.pop("input"), **given)


@router.delete("/schedules/{schedule}", status_code=204)
async def remove(who: Who, schedule: str) -> None:
    await who.remove_schedule(schedule)


@router.post("/schedules/{schedule}/pause", status_code=204)
async def pause(who: Who, schedule: str) -> None:
    await who.pause_schedule(schedule)


@router.post("/schedules/{schedule}/resume", status_code=204)
async def resume(who: Who, schedule: str) -> None:
    await who.resume_schedule(schedule)
