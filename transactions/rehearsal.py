"""What a rehearsal does to the record and a worker never does: it lets time pass, and lets a process be gone."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_one
from transactions.errors import NotFound
from transactions.ids import RunId, WorkerId
from transactions.statements import load

_REHEARSAL = load("rehearsal")
_DUE = (
    "approvals_earlier",
    "deliveries_earlier",
    "actions_earlier",
    "runs_earlier",
    "states_earlier",
    "segments_earlier",
    "schedules_earlier",
)


async def let_pass(session: AsyncSession, by: timedelta) -> None:
    """Move all that is still due in this database back by so much, and no clock.

    When approvals expire, deliveries are tried again and their claims lapse, attempts are over, runs must have ended,
    may begin, or are started by a schedule.
    """
    for name in _DUE:
        await execute(session, _REHEARSAL[name], by=by)


async def process_is_gone(session: AsyncSession, worker_id: WorkerId) -> None:
    """Make a live worker's process one that is not found on this machine any more; a watchdog draws the conclusion."""
    await execute(session, _REHEARSAL["process_is_gone"], worker_id=worker_id)


async def look(session: AsyncSession, run_id: RunId) -> Mapping[str, Any]:
    """`state`, `reason`, `output`, `ended`, `event_seq` of a run; how many of its `deliveries` and engine `workflows`
    are open; which approvals it `asks` for, and `asks_for_s`: until the first of them expires. Raises NotFound."""
    row = await fetch_one(session, _REHEARSAL["look"], run_id=run_id)
    if row is None:
        raise NotFound(f"No run {run_id} in this rehearsal: start it with `stage.start(...)`.")
    return row
