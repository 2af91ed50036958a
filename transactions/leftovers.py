"""Removing what belongs to no run: rows of the engine, of workers that ended, old tokens, counters nobody counts by."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import fetch_all, fetch_one
from transactions.removal import After, Batch
from transactions.statements import load

_LEFTOVERS = load("leftovers")
_ORPHANS = ("orphaned_inputs", "orphaned_outputs", "orphaned_steps", "orphaned_datasource_outputs")
_TOLD_DAYS_MAX = 400
FIRST_OF_ENGINE = After(-1, "")
FIRST_ID = After(0, "")
FIRST_KEY = After(("", "", ""), "")


async def of_engine(session: AsyncSession, after: After, *, keep_s: float, limit: int) -> Batch:
    """Remove the engine's rows of segments that it is done with and that are settled here, both for so long.

    By SQL, in one commit with the question whether our segment is settled; the engine's own call asks nothing, and
    deletes from the same four tables (`tests/contract/test_removal_in_the_engine.py`).
    """
    found = await fetch_all(
        session,
        _LEFTOVERS["lock_done_of_engine_skip_locked"],
        keep_s=keep_s,
        after_at=after.at,
        after_id=after.id,
        limit=limit,
    )
    if not found:
        return Batch()
    items, rows = await _counted(
        session, "remove_of_engine_if_segment_settled", ids=[row["id"] for row in found], keep_s=keep_s
    )
    last = After(found[-1]["completed_at"], found[-1]["id"]) if len(found) == limit else None
    return Batch(items, rows, next=last)


async def orphans_of_engine(session: AsyncSession, after: After, *, limit: int) -> Batch:
    """Remove rows of the engine whose workflow is gone: a page of one of its tables, whose number is `after.at`."""
    row = await fetch_one(session, _LEFTOVERS[_ORPHANS[after.at]], after=after.id, limit=limit)
    assert row is not None
    following = After(after.at, row["last_id"])
    if row["last_id"] is None:
        following = After(after.at + 1, "") if after.at + 1 < len(_ORPHANS) else None
    return Batch(row["rows"], row["rows"], next=following)


async def idle_counters(session: AsyncSession, after: After, *, limit: int) -> Batch:
    """Remove the counters of keys of which there is no entry, of the next so many keys. The next entry has number 1."""
    tenant, topic, key = after.at
    page = await fetch_all(session, _LEFTOVERS["idle_keys"], tenant=tenant, topic=topic, key=key, limit=limit)
    idle = _columns([row for row in page if not row["is_used"]])
    locked = _columns(await fetch_all(session, _LEFTOVERS["lock_keys_skip_locked"], **idle)) if idle["keys"] else idle
    items, rows = (0, 0)
    if locked["keys"]:
        items, rows = await _counted(session, "remove_locked_keys_if_idle", **locked)
    last = After((page[-1]["tenant"], page[-1]["topic"], page[-1]["key"]), "") if len(page) == limit else None
    return Batch(items, rows, next=last)


def _columns(rows: Sequence[Any]) -> dict[str, list[str]]:
    return {f"{name}s": [row[name] for row in rows] for name in ("tenant", "topic", "key")}


async def numbers(session: AsyncSession, *, keys_s: float, limit: int) -> Batch:
    """Remove what is known of versions that are gone for longer than keys are kept."""
    return await _until_none(session, "remove_numbers", keys_s=keys_s, limit=limit)


async def workers(session: AsyncSession, *, keep_s: float, limit: int) -> Batch:
    """Remove rows of workers that ended so long ago, and that nothing goes by any more."""
    return await _until_none(session, "remove_workers", keep_s=keep_s, limit=limit)


async def tokens(session: AsyncSession, *, keep_s: float, limit: int) -> Batch:
    """Remove tokens that were revoked, or have expired, so long ago."""
    return await _until_none(session, "remove_tokens", keep_s=keep_s, limit=limit)


async def records(session: AsyncSession, *, limit: int) -> Batch:
    """Remove what is told of removals of more than a year ago."""
    return await _until_none(session, "remove_told", days=_TOLD_DAYS_MAX, limit=limit)


async def _until_none(session: AsyncSession, statement: str, *, limit: int, **parameters: object) -> Batch:
    """Removes from the front: another batch follows a full one."""
    items, rows = await _counted(session, statement, limit=limit, **parameters)
    return Batch(items, rows, next=FIRST_ID if items == limit else None)


async def _counted(session: AsyncSession, statement: str, **parameters: object) -> tuple[int, int]:
    row = await fetch_one(session, _LEFTOVERS[statement], **parameters)
    assert row is not None
    return row["items"], row["rows"]
