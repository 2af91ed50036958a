"""Settle a segment, put its run aside, or go on without it in the next one from the run's own record."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions import waits
from transactions.database import execute, fetch_one
from transactions.events import Event, number
from transactions.ids import RunId
from transactions.statements import load
from transactions.states import RunState

_RUNS = load("runs")
_SEGMENTS = load("segments")


async def settle(session: AsyncSession, run_id: RunId, n: int, *, outcome: str) -> None:
    """Mark the segment settled; a settled one stays as it is."""
    await execute(session, _SEGMENTS["settle"], run_id=run_id, n=n, outcome=outcome)


async def hold(
    session: AsyncSession, run_id: RunId, n: int, *, reason: str, for_version: bool = False, by: str | None = None
) -> None:
    """Put the run aside with the reason; its segment is settled. The caller holds the run row's lock.

    for_version: until a live version can carry it on, and then it goes on by itself.
    """
    await settle(session, run_id, n, outcome="held")
    await execute(session, _RUNS["stop_if_open"], run_id=run_id, state=RunState.HELD, ended=False, reason=reason)
    if for_version:
        await execute(session, _RUNS["held_until_a_version_can"], run_id=run_id)
    await number(session, run_id, Event("run.held", {"reason": reason} if by is None else {"reason": reason, "by": by}))


async def go_on_without(
    session: AsyncSession, run: Mapping[str, Any], *, outcome: str, stalls: int, told: Event
) -> None:
    """Give up the run's open segment and ask the engine for the next one. The caller holds the run row's lock.

    What the given up one had done is in the run's own record: its messages, its actions. Fences who executes it.
    """
    run_id, n = RunId(run["run_id"]), run["segment"]
    await settle(session, run_id, n, outcome=outcome)
    raised = await fetch_one(session, _RUNS["raise_segment_after_loss"], run_id=run_id, segment=n, stalls=stalls)
    assert raised is not None, "the lock is held and the state was read under it"
    await number(session, run_id, told)
    await waits.enqueue_next(session, run_id, n=raised["segment"], tenant=raised["tenant"])
