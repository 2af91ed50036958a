"""Removes what is over and older than it has to be kept. In every worker, and one batch at a time in all of them.

A pass goes through a kind from the oldest on, batch by batch, each a short transaction of its own: whoever dies in the
middle leaves nothing half done, and the next pass finds the rest. It takes a fixed share of the time, however long a
batch takes, so that it slows down when the database is busy.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from transactions import DEFAULT_TENANT, Database, Session, Tenant, is_forbidden, is_transient, removal, retention
from transactions import leftovers as left
from transactions.access import NO_RIGHT
from transactions.removal import START, After, Batch
from transactions.retention import FOREVER, POLICY_KINDS, Group, Keep, Kind, PolicyKind

WORKERS = "workers"  # who removed it
_log = logging.getLogger("surefoot.retention")
_LIMIT_MIN, _LIMIT, _LIMIT_MAX = 50, 100, 500  # on a busy machine a small batch takes as long as a larger one
_MORE = 4  # times as many, where a batch has to hold everything that goes
_SLOW_S, _QUICK_S = 0.5, 0.1
_PAUSE_S_MIN = 0.02
_BUSY_S = 0.1  # about so long a batch takes
_TURN_S_MIN = 5.0  # what grows as fast as it is removed keeps nobody from the next kind
_REST_BEHIND = 1.0  # half of the time, instead of a fifth, while what a batch takes on is all there
_SELDOM = 60.0  # what grows slowly is looked at so many times as seldom
SELDOM: Sequence[Kind] = ("orphans", "counters", "numbers", "workers", "tokens", "records")
KINDS: Sequence[Kind] = get_args(Kind)

Step = Callable[[Session, After, int], Awaitable[Batch]]


@dataclass(slots=True)
class Removed:
    """What a pass removed of a kind: `items` in `rows` of all tables, and why others stayed that are old enough.

    more: it was ended before its end.
    """

    kind: Kind
    items: int = 0
    rows: int = 0
    kept: Counter[str] = field(default_factory=Counter[str])
    more: bool = False

    def count(self, batch: Batch) -> None:
        """One more batch was done."""
        self.items += batch.items
        self.rows += batch.rows
        self.kept += batch.kept


@dataclass(frozen=True, slots=True)
class Share:
    """One sequence of batches: of a tenant's rows, or of what belongs to nobody. first: where it begins."""

    tenant: Tenant
    first: After
    step: Step


@dataclass(frozen=True, slots=True)
class Retention:
    """`every_s`: how long after the last pass of any worker the next one begins. `rest`: how many times as long as a
    batch the pause after it is.
    """

    database: Database
    keep: Keep
    still_mine: Callable[[], None]
    every_s: float = 60.0
    rest: float = 4.0  # a fifth of the time of one connection, while it is not behind

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.every_s * random.uniform(0.75, 1.25))  # noqa: S311  jitter, not a secret
            try:
                await self.run_once()
            except Exception as error:
                if is_forbidden(error):
                    _log.error("%s", NO_RIGHT)
                elif not is_transient(error):
                    _log.exception("a pass of retention failed; a later one goes on")

    async def run_once(self) -> Sequence[Removed]:
        """Go through every kind that no worker has gone through for as long as it has to be."""
        done: list[Removed] = []
        for kind in KINDS:
            self.still_mine()
            every_s = self.every_s * (_SELDOM if kind in SELDOM else 1.0)
            async with self.database.removing("retention.begin") as session:
                due = await retention.begin_pass_if_due(session, kind, every_s=every_s)
            if due:
                until = asyncio.get_running_loop().time() + max(self.every_s, _TURN_S_MIN)
                done.append(await self.go_through(kind, by=WORKERS, until=until))
        for removed in done:
            if removed.rows:
                _log.info("removed %d %s in %d rows", removed.items, removed.kind, removed.rows)
        return done

    async def go_through(
        self, kind: Kind, *, by: str, dry: bool = False, tenant: Tenant | None = None, until: float | None = None
    ) -> Removed:
        """One pass of a kind, of one tenant or of all. until: in the loop's time, when it has to come to an end.

        dry: only count: every batch is rolled back; of one tenant it only looks, for anybody may ask for that at any
        time.
        """
        removed = Removed(kind)
        limit, rest = _LIMIT, self.rest
        looks = dry and tenant is not None
        for share in await self._shares(kind, tenant, look=looks):
            after: After | None = share.first
            while after is not None:
                self.still_mine()
                if until is not None and asyncio.get_running_loop().time() > until:
                    removed.more = True
                    return removed
                began = time.monotonic()
                batch = await self._batch(kind, share, after, limit, by=by, dry=dry, alone=not looks)
                if batch is None:  # another process is at one of its own
                    await asyncio.sleep(_BUSY_S * random.uniform(0.5, 1.5))  # noqa: S311  jitter, not a secret
                    continue
                took_s = time.monotonic() - began
                if dry and batch.next == share.first:  # removed from the front, and rolled back: it is all there again
                    limit *= _MORE
                else:
                    removed.count(batch)
                    rest = min(self.rest, _REST_BEHIND) if batch.items >= limit else self.rest
                    after, limit = batch.next, _fitting(limit, took_s)
                await asyncio.sleep(max(_PAUSE_S_MIN, rest * took_s))
        return removed

    async def _batch(
        self, kind: Kind, share: Share, after: After, limit: int, *, by: str, dry: bool, alone: bool
    ) -> Batch | None:
        """None: it is another process's turn. While batches of a pass follow each other no worker begins another."""
        began = time.monotonic()
        async with self.database.removing("retention.batch") as session:
            if alone and not await retention.try_lock(session):
                return None
            batch = await share.step(session, after, limit)
            if dry:
                await session.rollback()
                return batch
            if batch.rows:
                await retention.tell(session, share.tenant, kind, by=by, items=batch.items, rows=batch.rows)
            if by == WORKERS:
                await retention.go_on(session, kind, rest_s=self.rest * (time.monotonic() - began))
        return batch

    async def _shares(self, kind: Kind, tenant: Tenant | None, *, look: bool) -> Sequence[Share]:
        """In which sequences of batches a kind is gone through."""
        if kind not in POLICY_KINDS:
            shared = self._of_nobody(kind) if tenant is None else None
            return () if shared is None else (Share(DEFAULT_TENANT, *shared),)
        default_s: float = getattr(self.keep, kind)
        async with self.database.removing("retention.look") as session:
            groups = await retention.groups(session, kind, default_s=default_s, tenant=tenant)
        return [Share(group.tenant, START, self._of_group(kind, group, look)) for group in groups]

    def _of_group(self, kind: PolicyKind, group: Group, look: bool) -> Step:
        keys_s = self.keep.keys
        match kind:
            case "runs":
                return lambda s, after, n: removal.whole_runs(s, group, after, limit=n, keys_s=keys_s, look=look)
            case "artifacts":
                return lambda s, after, n: removal.old_versions(s, group, after, limit=n, look=look)
            case "outbox" if not group.agent:
                return lambda s, after, n: removal.entries_of_no_run(s, group, after, limit=n, look=look)
            case "messages" | "events" | "outbox":
                return lambda s, after, n: removal.part_of_runs(s, kind, group, after, limit=n, look=look)
            case "keys":
                raise AssertionError("keys hold runs, and are removed with them")

    def _of_nobody(self, kind: Kind) -> tuple[After, Step] | None:
        """None: kept for ever."""
        keep = self.keep
        match kind:
            case "engine" if keep.engine != FOREVER:
                return left.FIRST_OF_ENGINE, lambda s, after, n: left.of_engine(s, after, keep_s=keep.engine, limit=n)
            case "orphans":
                return left.FIRST_ID, lambda s, after, n: left.orphans_of_engine(s, after, limit=n)
            case "counters":
                return left.FIRST_KEY, lambda s, after, n: left.idle_counters(s, after, limit=n)
            case "workers" if keep.workers != FOREVER:
                return left.FIRST_ID, lambda s, _, n: left.workers(s, keep_s=keep.workers, limit=n)
            case "tokens" if keep.tokens != FOREVER:
                return left.FIRST_ID, lambda s, _, n: left.tokens(s, keep_s=keep.tokens, limit=n)
            case "numbers":
                return left.FIRST_ID, lambda s, _, n: left.numbers(s, keys_s=keep.keys, limit=n)
            case "records":
                return left.FIRST_ID, lambda s, _, n: left.records(s, limit=n)
            case _:
                return None


def _fitting(limit: int, took_s: float) -> int:
    """How much the next batch takes on, after one that took so long."""
    if took_s > _SLOW_S:
        return max(_LIMIT_MIN, limit // 2)
    return min(_LIMIT_MAX, limit * 2) if took_s < _QUICK_S else limit
