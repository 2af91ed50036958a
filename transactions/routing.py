"""Which version the engine's open segments are for: moved to one that lives, or held until there is one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions import readers, steering, stopping
from transactions.database import fetch_all, fetch_one
from transactions.events import Event, number
from transactions.ids import RunId
from transactions.statements import load
from transactions.states import RunState

_ROUTING = load("routing")
_RUNS = load("runs")
BY = "watchdog"


@dataclass(frozen=True, slots=True)
class Misrouted:
    """A workflow of the engine that is for version `was`, and whose run `version` carries on.

    `begun`: some steps of it may be recorded, which are replayed there. `run_id`, `segment`: None where that is
    settled: then somebody has to tell the engine so.
    """

    workflow_id: str
    was: str | None
    version: str
    begun: bool
    run_id: RunId | None
    segment: int | None


async def lock(session: AsyncSession, *, hold_s: float) -> bool:
    """Whether this transaction is the one active router, until it ends; hold_s: as that of `workers.watchdog_lock`."""
    row = await fetch_one(session, _ROUTING["try_router_lock"], hold_ms=str(int(hold_s * 1000)))
    return row is not None and bool(row["mine"])


async def misrouted(session: AsyncSession, *, version: str, limit: int) -> Sequence[Misrouted]:
    """Workflows that nobody executes and nobody of their version can, or that a newer version should take.

    What is queued and never began goes to the newest version that can carry it on; what began stays with its version
    while that has a worker that takes work. version: who takes those whose segment is settled.
    """
    rows = await fetch_all(session, _ROUTING["misrouted"], version=version, limit=limit)
    return [Misrouted(**row) for row in rows]


async def move_unbegun(session: AsyncSession, found: Sequence[Misrouted]) -> None:
    """Move those that are no run's, or have not begun, as they still are. They are many after a deploy."""
    mine = [one for one in found if not one.begun or one.run_id is None]
    if mine:
        await _move(session, mine)


async def move_begun(session: AsyncSession, one: Misrouted) -> bool:
    """Move one that began, with an event. False: its run has gone another way since."""
    assert one.run_id is not None
    run = await fetch_one(session, _RUNS["lock"], run_id=one.run_id)
    if run is None or run["segment"] != one.segment or not await _move(session, [one]):
        return False
    await number(
        session, one.run_id, Event("segment.moved", {"segment": one.segment, "from": one.was, "to": one.version})
    )
    return True


async def _move(session: AsyncSession, found: Sequence[Misrouted]) -> int:
    rows = await fetch_all(
        session,
        _ROUTING["move_if_not_executed"],
        ids=[one.workflow_id for one in found],
        was=[one.was for one in found],
        versions=[one.version for one in found],
    )
    return len(rows)


async def unreadable(session: AsyncSession, *, gone_s: float, limit: int) -> Sequence[RunId]:
    """Runs that no version that lives can carry on, nor was there one for `gone_s` seconds: that executes them, or
    delivers what they wait for.

    A run whose agent nobody serves just waits until a worker has been up for as long: all may be on their way up.
    """
    rows = await fetch_all(session, _ROUTING["unreadable"], gone_s=gone_s, run_id=None, limit=limit)
    rows = [*rows, *await fetch_all(session, _ROUTING["undelivered"], gone_s=gone_s, run_id=None, limit=limit)]
    return [RunId(row["run_id"]) for row in rows]


async def hold_unreadable(session: AsyncSession, run_id: RunId, *, gone_s: float) -> bool:
    """Hold such a run, with the reason, if it still is one; asked again under its row's lock."""
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None:
        return False
    found = await fetch_one(session, _ROUTING["unreadable"], gone_s=gone_s, run_id=run_id, limit=1)
    if found is not None:
        told = await fetch_one(session, _ROUTING["last_refusal"], run_id=run_id)
        why = _why_unreadable(run, served=found["served"], told=None if told is None else told["why"])
    else:
        found = await fetch_one(session, _ROUTING["undelivered"], gone_s=gone_s, run_id=run_id, limit=1)
        if found is None:
            return False
        why = (
            f"it waits for its call of {found['tool']}, which no version that has a worker can deliver, by its tools "
            f"and the state {run['state_version']} of the run"
        )
    reason = readers.held_words(why, found["readers"])
    await stopping.hold(session, run_id, run["segment"], reason=reason, for_version=True)
    return True


def _why_unreadable(run: Mapping[str, Any], *, served: bool, told: str | None) -> str:
    """`told`: what the version said that refused the run last."""
    why = f"its state is of version {run['state_version']}, which no version that has a worker can read"
    if run["pinned_version"] is not None:
        why = f"it was moved to version {run['pinned_version']!r}, which has no worker"
    elif not served:
        why = f"no version that has a worker serves agent {run['agent']}"
    elif run["agent_version"] is not None and run["refused_by"]:
        why = told or f"{', '.join(map(repr, run['refused_by']))} cannot carry it on"
    return why


async def readable_again(session: AsyncSession, *, limit: int) -> Sequence[RunId]:
    """Runs that are held until a live version can carry them on, and one can."""
    rows = await fetch_all(session, _ROUTING["readable_again"], limit=limit)
    return [RunId(row["run_id"]) for row in rows]


async def let_go_on(session: AsyncSession, run_id: RunId) -> bool:
    """Let such a run go on, if it is still held for that."""
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None or run["state"] != RunState.HELD or run["held_for"] != "version":
        return False
    await steering.go_on(session, run, by=BY, anywhere=False)
    return True
