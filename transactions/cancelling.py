"""A run that was cancelled while a worker was at it: CANCELLING, until whoever executes it ends it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.events import Event
from transactions.ids import RunId
from transactions.statements import load

_RUNS = load("runs")
_SEGMENTS = load("segments")


async def among(session: AsyncSession, run_ids: Sequence[RunId]) -> Sequence[RunId]:
    """Those of the runs that are CANCELLING."""
    rows = await fetch_all(session, _RUNS["cancelling_of"], run_ids=list(run_ids))
    return [RunId(row["run_id"]) for row in rows]


async def end(
    session: AsyncSession, run: Mapping[str, Any], *, outcome: str, turns: int = 0, usage: str | None = None
) -> None:
    """CANCELLING -> CANCELLED, and its segment settled, under the run row's lock. The caller numbers `told(run)`.

    Who cancelled it, and why, stays its reason. None of its actions is PREPARED: the commit that asked cancelled them.
    """
    ended = await fetch_one(session, _RUNS["end_if_cancelling"], run_id=run["run_id"], turns=turns, usage=usage)
    assert ended is not None, "the lock is held and the state was read under it"
    await execute(session, _SEGMENTS["settle"], run_id=run["run_id"], n=run["segment"], outcome=outcome)


def told(run: Mapping[str, Any]) -> Event:
    """What is numbered in the commit that ends it."""
    return Event("run.cancelled", {"segment": run["segment"], "reason": run["reason"]})
