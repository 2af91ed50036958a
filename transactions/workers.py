"""A worker is one process start; its lease says it is alive. The database's clock decides."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.ids import RunId, WorkerId
from transactions.statements import load

_WORKERS = load("workers")
_RUNS = load("runs")
_SEGMENTS = load("segments")


async def register(
    session: AsyncSession,
    *,
    worker_id: WorkerId,
    version: str,
    host: str,
    machine: str,
    pid: int,
    pid_start: str,
    lease_s: float,
    consumers: Sequence[str] | None = None,
    slots: int | None = None,
    agents: Sequence[str] | None = None,
) -> None:
    """Insert the worker's row with its first lease. Before the engine is launched.

    consumers: to whom its relay delivers; slots: how many segments it runs at once; agents: those that it serves. None:
    it does not say.
    """
    await execute(
        session,
        _WORKERS["register"],
        worker_id=worker_id,
        version=version,
        host=host,
        machine=machine,
        pid=pid,
        pid_start=pid_start,
        lease_s=lease_s,
        consumers=None if consumers is None else list(consumers),
        slots=slots,
        agents=None if agents is None else list(agents),
    )


async def release(session: AsyncSession, worker_id: WorkerId, *, why: str) -> list[RunId]:
    """Say that this worker has left, and fence what it leaves behind: the runs whose segment it has not ended.

    Their executions may still go on in its process; they write nothing more. That they were handed over is no death of
    theirs. `why`: in words, for the run's record.
    """
    rows = await fetch_all(session, _WORKERS["fence_and_release_if_live"], worker_id=worker_id, why=why)
    return [row["run_id"] for row in rows]


async def ready(session: AsyncSession, worker_id: WorkerId) -> None:
    """From this commit on segments are handed to it: it can execute them."""
    await execute(session, _WORKERS["ready_if_live"], worker_id=worker_id)


async def drain(session: AsyncSession, worker_id: WorkerId) -> None:
    """From this commit on nothing is handed to it; it is live until it is released."""
    await execute(session, _WORKERS["drain_if_live"], worker_id=worker_id)


async def watchdog_lock(session: AsyncSession, *, hold_s: float) -> bool:
    """Whether this transaction is the one active watchdog, until it ends.

    hold_s: how long it may stay in one statement, and how long between two, before the server ends it.
    """
    row = await fetch_one(session, _WORKERS["try_watchdog_lock"], hold_ms=str(int(hold_s * 1000)))
    return row is not None and bool(row["mine"])


async def sessions_of_dead(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """`pid` and `application_name` of what workers that are dead still have open at the server."""
    return await fetch_all(session, _WORKERS["sessions_of_dead"])


async def end_sessions(session: AsyncSession, found: Sequence[Mapping[str, Any]]) -> None:
    """End these sessions at the server: what they have locked is free. Under the role that opened them."""
    for row in found:
        await execute(session, _WORKERS["end_session_if_still"], **row)


async def stranded(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """Rows of `surefoot.stranded`: segments of live runs that nobody is at and that nobody will take up by itself."""
    return await fetch_all(session, _WORKERS["stranded"])


async def mark_expired(session: AsyncSession) -> list[WorkerId]:
    return [row["worker_id"] for row in await fetch_all(session, _WORKERS["mark_expired"])]


async def live_on_machine(session: AsyncSession, machine: str) -> Sequence[Mapping[str, Any]]:
    """`worker_id`, `pid` and `pid_start` of live workers that said they run on this machine."""
    return await fetch_all(session, _WORKERS["live_on_machine"], machine=machine)


async def mark_gone(session: AsyncSession, worker_id: WorkerId, *, reason: str) -> bool:
    return await fetch_one(session, _WORKERS["mark_gone"], worker_id=worker_id, reason=reason) is not None


async def dead_with_pending(session: AsyncSession) -> list[WorkerId]:
    """Workers that are not live and still own executions."""
    return [row["worker_id"] for row in await fetch_all(session, _WORKERS["dead_with_pending"])]


async def raise_generations(session: AsyncSession, worker_id: WorkerId, *, limit: int) -> list[RunId]:
    """Fence the runs of a dead worker before they are handed over, passing over rows that are locked now."""
    rows = await fetch_all(session, _RUNS["raise_generations_of_dead"], worker_id=worker_id, limit=limit)
    return [row["run_id"] for row in rows]


async def orphaned_executors(session: AsyncSession, *, version: str) -> list[WorkerId]:
    """Executors without a live lease that own pending segments of this version."""
    return [row["executor_id"] for row in await fetch_all(session, _SEGMENTS["orphaned_executors"], version=version)]


async def settle_left_behind(session: AsyncSession, *, limit: int) -> list[RunId]:
    """Settle what waits for its turn, or is delayed, of a run that is over, held, or at another segment."""
    return [row["run_id"] for row in await fetch_all(session, _SEGMENTS["settle_left_behind"], limit=limit)]


async def superseded_workflows(session: AsyncSession) -> list[str]:
    """Engine rows of segments that were given up, still open there."""
    return [row["workflow_uuid"] for row in await fetch_all(session, _SEGMENTS["superseded_workflows"])]


async def agents(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """`name`, `version`, `input_schema`, `seen_at` of every agent that was ever served here."""
    return await fetch_all(session, _WORKERS["agents"])
