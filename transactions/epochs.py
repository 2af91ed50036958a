"""Epochs: what follows when the database is not the one it was: restored, copied, or gone over to a standby.

What was committed after the backup is lost, and may have been done. So an effect that is open then, and every one that
a run of an earlier epoch prepares later, counts as sent before it is sent: it is verified, or a person is asked. Runs
that start in the new epoch are as always, but for effects with a business key, which are looked for where that can be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.ids import ActionId
from transactions.statements import load
from transactions.whereabouts import Whereabouts

_EPOCHS = load("epochs")
LOST = "it may have been done in what the restored database has lost"


@dataclass(frozen=True, slots=True)
class Begun:
    """A new epoch. How many effects are looked for first, runs were fenced, and workers have to start anew."""

    epoch: int
    effects: int
    runs: int
    workers: int


async def arrive(session: AsyncSession, *, by: str) -> tuple[Whereabouts, Begun | None]:
    """Before a worker registers: where the database is, and the epoch that begins because it was elsewhere before.

    The first worker that comes to a database notes where it is. In a transaction of `Database.all_tenants`.
    """
    here = await _here(session)
    _, known = await _known(session)
    if known != Whereabouts() and known.is_at(here):
        return here, None
    await execute(session, _EPOCHS["lock"])  # of several workers that find it, one begins the epoch
    epoch, known = await _known(session)
    if known == Whereabouts():
        await execute(session, _EPOCHS["note_whereabouts_if_unknown"], epoch=epoch)
        return here, None
    if known.is_at(here):
        return here, None
    return here, await begin(session, why=f"the database {known.difference(here)}", by=by)


async def begin(session: AsyncSession, *, why: str, by: str) -> Begun:
    """Begin an epoch: workers of before lose their leases, and what may have been done is looked for before it is sent.

    Lock order: workers, actions, runs. Safe to repeat, at the price of looking once more. In a transaction of
    `Database.all_tenants`.
    """
    await execute(session, _EPOCHS["lock"])
    row = await fetch_one(session, _EPOCHS["begin_next"], why=why, by=by)
    assert row is not None
    ended = await fetch_all(session, _EPOCHS["end_workers"], why=f"epoch {row['epoch']} began: {why}"[:4000])
    prepared = await fetch_all(session, _EPOCHS["look_first_at_what_is_prepared"])
    sent = await fetch_all(session, _EPOCHS["believe_no_absence_yet"], begun_at=row["begun_at"])
    fenced = await fetch_all(session, _EPOCHS["fence_open_runs"], epoch=row["epoch"], why=why)
    late = await fetch_all(session, _EPOCHS["look_first_at_what_came_meanwhile"], begun_at=row["begun_at"])
    effects = {action["action_id"] for action in (*prepared, *sent, *late)}
    return Begun(row["epoch"], len(effects), len(fenced), len(ended))


async def presume_sent(session: AsyncSession, action_ids: Sequence[ActionId], *, reason: str) -> Mapping[ActionId, int]:
    """PREPARED -> UNKNOWN for those that may have been done in what was lost; their attempt that stands for it."""
    rows = await fetch_all(session, _EPOCHS["presume_sent"], action_ids=list(action_ids), reason=reason)
    return {ActionId(row["action_id"]): int(row["attempt"]) for row in rows}


async def _here(session: AsyncSession) -> Whereabouts:
    row = await fetch_one(session, _EPOCHS["whereabouts"])
    assert row is not None
    return _whereabouts(row)


async def _known(session: AsyncSession) -> tuple[int, Whereabouts]:
    row = await fetch_one(session, _EPOCHS["current"])
    assert row is not None, "the first migration begins the first epoch"
    return int(row["epoch"]), _whereabouts(row)


def _whereabouts(row: Mapping[str, Any]) -> Whereabouts:
    return Whereabouts(row["system_id"], row["timeline"], row["database_id"])
