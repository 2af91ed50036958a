"""Removing what is over, in batches: of each, nothing that is not done and nothing that something else refers to.

A batch is a short transaction of its own. The rows of a run are locked in the order in which everybody locks them, and
what somebody else has locked is left for another pass; only then is asked whether they may go, in new statements, so
that whoever came first is seen and whoever comes later finds nothing.

With `look` a batch only looks: it removes nothing, locks no run, counts items and no rows, and does not see what a
foreign key of a table that is not known here holds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import psycopg
from sqlalchemy import TextClause, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.ids import RunId
from transactions.retention import Group
from transactions.statements import load

_REMOVAL = load("removal")
# A foreign key that is deferred would speak up at the commit, when it is too late to leave one run out.
_CHECKED_NOW = text("set constraints all immediate")
_AT_WORK = "somebody is at work on it"
Part = Literal["messages", "events", "outbox"]
_PARTS: Mapping[Part, tuple[str, str, str]] = MappingProxyType(
    {
        "messages": ("ended_with_messages", "remove_messages", "look_messages"),
        "events": ("ended_with_events", "remove_events", "look_events"),
        "outbox": ("ended_with_outbox", "remove_outbox", "look_outbox"),
    }
)


@dataclass(frozen=True, slots=True)
class After:
    """Where a pass has come to: the age and the id of the last row that it looked at."""

    at: Any
    id: str


START = After("-infinity", "")


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch came to. `items`: what went, in `rows` of all tables; `kept`: what did not, by the reason.

    next: where the next batch begins; None: this was the last one of the group.
    """

    items: int = 0
    rows: int = 0
    kept: Counter[str] = field(default_factory=Counter[str])
    next: After | None = None


async def whole_runs(
    session: AsyncSession, group: Group, after: After, *, limit: int, keys_s: float, look: bool = False
) -> Batch:
    """Remove runs with everything that is theirs, here and in the engine."""
    found = await _ended(session, "ended", group, after, limit)
    kept: Counter[str] = Counter()
    # Any number may stay for their keys, for ever: nothing of those is locked. Asked again: a key may count from later.
    keyless = await _keyless(session, [row["id"] for row in found], kept, keys_s=keys_s)
    going = await _done(session, keyless if look else await _locked(session, keyless, kept), kept)
    going = await _keyless(session, going, kept, keys_s=keys_s)
    # Those that refer to each other go together, or not at all.
    while going and (named := await fetch_all(session, _REMOVAL["referred_to"], run_ids=going)):
        going = _without(going, named, kept)
    if look:
        return Batch(len(going), kept=kept, next=_next(found, limit))
    items, rows = await _remove(session, _REMOVAL["remove_runs"], going, kept)
    return Batch(items, rows, kept, _next(found, limit))


async def part_of_runs(
    session: AsyncSession, part: Part, group: Group, after: After, *, limit: int, look: bool = False
) -> Batch:
    """Remove a part of runs that are over and stay themselves."""
    which, remove, would_remove = _PARTS[part]
    found = await _ended(session, which, group, after, limit)
    kept: Counter[str] = Counter()
    run_ids = [row["id"] for row in found]
    going = await _done(session, run_ids if look else await _locked(session, run_ids, kept), kept)
    if look:
        going_of = await fetch_one(session, _REMOVAL[would_remove], run_ids=going)
        assert going_of is not None
        return Batch(going_of["items"], kept=kept, next=_next(found, limit))
    items, rows = await _remove(session, _REMOVAL[remove], going, kept)
    return Batch(items, rows, kept, _next(found, limit))


async def entries_of_no_run(
    session: AsyncSession, group: Group, after: After, *, limit: int, look: bool = False
) -> Batch:
    """Remove entries that no run has put, once they are delivered or discarded everywhere."""
    found = await fetch_all(
        session, _REMOVAL["lock_entries_of_no_run_skip_locked"], **_page(group, after, limit, agent=False)
    )
    if not found:
        return Batch()
    gone = await fetch_one(
        session,
        _REMOVAL["remove_entries_if_delivered_or_discarded"],
        entry_ids=[row["id"] for row in found],
        keep_s=group.keep_s,
        look=look,
    )
    assert gone is not None
    return Batch(gone["items"], gone["rows"], next=_next(found, limit))


async def old_versions(session: AsyncSession, group: Group, after: After, *, limit: int, look: bool = False) -> Batch:
    """Remove versions of artifacts that a later one has replaced and nothing refers to.

    Their bytes in a store outside are the sweeper's after this commit: a row is never without its bytes.
    """
    found = await fetch_all(session, _REMOVAL["old_versions"], **_page(group, after, limit))
    kept: Counter[str] = Counter()
    done = {*await _done(session, sorted({row["run_id"] for row in found}), Counter())}
    if left := sum(row["run_id"] not in done for row in found):
        kept["its run is not done"] += left
    going = [row for row in found if row["run_id"] in done]
    items, rows = await _remove_versions(session, group, going, kept, look=look)
    return Batch(items, rows, kept, _next(found, limit))


async def _ended(
    session: AsyncSession, which: str, group: Group, after: After, limit: int
) -> Sequence[Mapping[str, Any]]:
    return await fetch_all(session, _REMOVAL[which], **_page(group, after, limit))


def _page(group: Group, after: After, limit: int, *, agent: bool = True) -> dict[str, Any]:
    of = {"agent": group.agent} if agent else {}
    return {
        "tenant": group.tenant, "keep_s": group.keep_s, "after_at": after.at, "after_id": after.id, "limit": limit, **of
    }  # fmt: skip


def _next(found: Sequence[Mapping[str, Any]], limit: int) -> After | None:
    return After(found[-1]["at"], found[-1]["id"]) if len(found) == limit else None


async def _locked(session: AsyncSession, run_ids: Sequence[RunId], kept: Counter[str]) -> list[RunId]:
    """Those of the runs of which every action, entry and delivery and the run itself is this transaction's now."""
    if not run_ids:
        return []
    ids = {"run_ids": list(run_ids)}
    actions = await fetch_all(session, _REMOVAL["lock_actions_skip_locked"], **ids)
    entries = await fetch_all(session, _REMOVAL["lock_entries_skip_locked"], **ids)
    deliveries = await fetch_all(session, _REMOVAL["lock_deliveries_skip_locked"], **ids)
    locked = [row["id"] for row in await fetch_all(session, _REMOVAL["lock_runs_skip_locked"], **ids)]
    taken = await fetch_all(
        session,
        _REMOVAL["unlocked"],
        run_ids=locked,
        actions=[row["id"] for row in actions],
        entries=[row["id"] for row in entries],
        deliveries=[row["id"] for row in deliveries],
    )
    others = {row["id"] for row in taken}
    mine = [run_id for run_id in locked if run_id not in others]
    if left := len(run_ids) - len(mine):
        kept[_AT_WORK] += left
    return mine


async def _done(session: AsyncSession, run_ids: list[RunId], kept: Counter[str]) -> list[RunId]:
    if not run_ids:
        return []
    return _without(run_ids, await fetch_all(session, _REMOVAL["unfinished"], run_ids=run_ids), kept)


async def _keyless(session: AsyncSession, run_ids: list[RunId], kept: Counter[str], *, keys_s: float) -> list[RunId]:
    if not run_ids:
        return []
    return _without(run_ids, await fetch_all(session, _REMOVAL["keyed"], run_ids=run_ids, keys_s=keys_s), kept)


def _without(run_ids: list[RunId], named: Sequence[Mapping[str, Any]], kept: Counter[str]) -> list[RunId]:
    kept.update(row["why"] for row in named)
    stay = {row["id"] for row in named}
    return [run_id for run_id in run_ids if run_id not in stay]


async def _remove(
    session: AsyncSession, statement: TextClause, run_ids: list[RunId], kept: Counter[str]
) -> tuple[int, int]:
    """Items and rows. What a foreign key of a table that is not known here holds is left out, and told."""
    if not run_ids:
        return 0, 0
    try:
        async with session.begin_nested():
            gone = await fetch_one(session, statement, run_ids=run_ids)
            await execute(session, _CHECKED_NOW)
            assert gone is not None
            return gone["items"], gone["rows"]
    except IntegrityError as error:
        why = _held_by(error)
    if len(run_ids) == 1:
        kept[why] += 1
        return 0, 0
    counts = [await _remove(session, statement, [run_id], kept) for run_id in run_ids]
    return sum(items for items, _ in counts), sum(rows for _, rows in counts)


async def _remove_versions(
    session: AsyncSession, group: Group, found: Sequence[Mapping[str, Any]], kept: Counter[str], *, look: bool
) -> tuple[int, int]:
    if not found:
        return 0, 0
    try:
        async with session.begin_nested():
            gone = await fetch_one(
                session,
                _REMOVAL["remove_versions_if_nothing_refers_to_them"],
                tenant=group.tenant,
                names=[row["name"] for row in found],
                versions=[row["version"] for row in found],
                look=look,
            )
            await execute(session, _CHECKED_NOW)
            assert gone is not None
            if left := len(found) - gone["items"]:
                kept["something refers to it"] += left
            return gone["items"], gone["rows"]
    except IntegrityError as error:
        why = _held_by(error)
    if len(found) == 1:
        kept[why] += 1
        return 0, 0
    counts = [await _remove_versions(session, group, [row], kept, look=look) for row in found]
    return sum(items for items, _ in counts), sum(rows for _, rows in counts)


def _held_by(error: IntegrityError) -> str:
    """In words. Raises what is no foreign key."""
    if not isinstance(error.orig, psycopg.errors.ForeignKeyViolation):
        raise error
    return f"a row of {error.orig.diag.schema_name}.{error.orig.diag.table_name} refers to it"
