"""Runs that start by the clock: rows, and the commit in which one that is due starts and is due next time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import cron, principals, runs
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import InvalidInput, NotFound, QueueFull, SurefootError
from transactions.ids import RunId, Tenant
from transactions.principals import Role
from transactions.statements import load

_SCHEDULES = load("schedules")
_FIRED_MAX = 20
# Of a schedule that starts all that it missed, at one go; the rest comes with the next round.
_MISSED_MAX = 100
# What is later than this was missed.
LATE = timedelta(seconds=60)
_STAYS_DUE = "it stays due: "
_NAME_CHARACTERS = "letters, digits, `_`, `.` and `-`"

Missed = Literal["last", "all", "none"]
Overlap = Literal["skip", "allow"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What starts when. `cron`: five fields, by the clock of `time_zone`.

    missed: what is done about times that nobody was there for: `last` starts the last one of them, `all` each, `none`
    none that is over LATE. overlap: `skip` starts none while the run before it is not over.
    """

    name: str
    agent: str
    input: JsonValue
    cron: str
    time_zone: str = "UTC"
    priority: int = 0
    missed: Missed = "last"
    overlap: Overlap = "skip"


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of a schedule that was due. `why`: why nothing was started, or not all."""

    tenant: Tenant
    name: str
    run_ids: Sequence[RunId]
    why: str | None


async def put(session: AsyncSession, tenant: Tenant, schedule: Schedule, *, by: str) -> None:
    """Make it, or change it as this says; a paused one stays paused. Its runs are started as those of `by`.

    What was due before and was not started is not any more. Raises InvalidInput.
    """
    name = schedule.name
    if not 1 <= len(name) <= 100 or not all(c.isascii() and (c.isalnum() or c in "_.-") for c in name):
        raise InvalidInput(f"{name[:100]!r} is no name for a schedule: use 1 to 100 {_NAME_CHARACTERS}.")
    cron.check(schedule.cron, schedule.time_zone)
    runs.check_priority(schedule.priority)
    row = await fetch_one(session, _SCHEDULES["now"])
    assert row is not None
    try:
        await execute(
            session,
            _SCHEDULES["set"],
            tenant=tenant,
            name=name,
            agent=schedule.agent,
            input=runs.canonical_input(schedule.input),
            cron=schedule.cron,
            time_zone=schedule.time_zone,
            principal=by,
            priority=schedule.priority,
            missed=schedule.missed,
            overlap=schedule.overlap,
            next_at=cron.next_after(schedule.cron, schedule.time_zone, row["now"]),
        )
    except DBAPIError as error:
        too_large = runs.refused_as_too_large(error)
        if too_large is None:
            raise
        raise too_large from error


async def page(session: AsyncSession, tenant: Tenant) -> Sequence[Mapping[str, Any]]:
    """A tenant's schedules, by name: what was set, `enabled`, `next_at`, and of the last time `last_at`, `last_run_id`
    and `last_why`."""
    return await fetch_all(session, _SCHEDULES["page"], tenant=tenant)


async def remove(session: AsyncSession, tenant: Tenant, name: str, *, by: str) -> None:
    """Raises NotFound."""
    if await fetch_one(session, _SCHEDULES["remove"], tenant=tenant, name=name, by=by) is None:
        raise _not_found(name)


async def pause(session: AsyncSession, tenant: Tenant, name: str, *, by: str) -> None:
    """It starts nothing until it is resumed. Raises NotFound."""
    await _get(session, tenant, name)
    await execute(session, _SCHEDULES["enable"], tenant=tenant, name=name, enabled=False, next_at=None, by=by)


async def resume(session: AsyncSession, tenant: Tenant, name: str, *, by: str) -> None:
    """From now on; what was due while it was paused is not started. Raises NotFound."""
    row = await _get(session, tenant, name)
    if not row["enabled"]:
        next_at = cron.next_after(row["cron"], row["time_zone"], row["now"])
        await execute(session, _SCHEDULES["enable"], tenant=tenant, name=name, enabled=True, next_at=next_at, by=by)


async def _get(session: AsyncSession, tenant: Tenant, name: str) -> Mapping[str, Any]:
    row = await fetch_one(session, _SCHEDULES["get"], tenant=tenant, name=name)
    if row is None:
        raise _not_found(name)
    return row


def _not_found(name: str) -> NotFound:
    return NotFound(f"No schedule {name!r}: see `surefoot schedules list`.")


async def fire_due(session: AsyncSession) -> Sequence[Fired]:
    """Start what is due, and say when it is due next: one commit. Passes over what another worker is at."""
    return [await _fire(session, row) for row in await fetch_all(session, _SCHEDULES["due"], limit=_FIRED_MAX)]


async def _fire(session: AsyncSession, row: Mapping[str, Any]) -> Fired:
    run_ids: list[RunId] = []
    last_at = next_at = why = None
    try:
        times, next_at = _times(row)
        why = None if times else _why_late(row)
        for last_at in times:
            why = await _start_unless_overlapping(session, row, last_at, run_ids) or why
    except QueueFull as full:  # it stays due
        why, next_at, last_at = f"{_STAYS_DUE}{full}", last_at, None
    except InvalidInput as wrong:  # what was right when it was set: it is due no more until somebody sets it anew
        why, next_at = str(wrong), None
    run_id = run_ids[-1] if run_ids else None
    key = {"tenant": row["tenant"], "name": row["name"]}
    await execute(session, _SCHEDULES["advance"], **key, next_at=next_at, at=last_at, run_id=run_id, why=why)
    return Fired(Tenant(row["tenant"]), row["name"], run_ids, why)


def _why_late(row: Mapping[str, Any]) -> str:
    """Why what was due, and is not started if it is late, was not started in time."""
    before: str = row["last_why"] or ""
    if before.startswith(_STAYS_DUE):
        return f"it was not started within {LATE.seconds} s: {before.removeprefix(_STAYS_DUE)}"
    return "no worker was there when it was due"


async def _start_unless_overlapping(
    session: AsyncSession, row: Mapping[str, Any], at: datetime, run_ids: list[RunId]
) -> str | None:
    """Add the run to `run_ids`, or why it was not started. Raises QueueFull."""
    if row["overlap"] == "skip" and (row["goes_on"] or run_ids):
        return f"run {run_ids[-1] if run_ids else row['last_run_id']}, which it started before, was not over"
    try:
        async with session.begin_nested():
            run_ids.append(await _start(session, row, at))
    except QueueFull:
        raise
    except SurefootError as refused:
        return str(refused)
    return None


def _times(row: Mapping[str, Any]) -> tuple[list[datetime], datetime | None]:
    """Those of the times since it was due that are to be started, and when it is due next. Raises InvalidInput."""
    expression, zone, first, now = row["cron"], row["time_zone"], row["next_at"], row["now"]
    cron.check(expression, zone)
    if row["missed"] == "all":
        more = islice(takewhile(lambda at: at <= now, cron.due_after(expression, zone, first)), _MISSED_MAX - 1)
        times = [first, *more]
        return times, cron.next_after(expression, zone, times[-1])
    last = cron.last_due(expression, zone, first=first, until=now)
    late = row["missed"] == "none" and now - last > LATE
    return [] if late else [last], cron.next_after(expression, zone, now)


async def _start(session: AsyncSession, row: Mapping[str, Any], at: datetime) -> RunId:
    """By a key of its own for each time, so that it is one run whoever starts it. Raises as `runs.start`, Forbidden."""
    tenant = Tenant(row["tenant"])
    if row["principal"] != principals.UNAUTHENTICATED or not await principals.is_open(session):
        (await principals.get(session, tenant, row["principal"])).need(Role.OPERATOR)
    return await runs.start(
        session,
        agent=row["agent"],
        input=row["input"],
        key=f"schedule:{row['name']}:{at:%Y-%m-%dT%H:%M:%SZ}",
        tenant=tenant,
        principal=row["principal"],
        priority=row["priority"],
    )
