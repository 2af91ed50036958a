"""Moves entries to their consumers: claims what is due, delivers, and settles the very attempt it claimed.

Woken by NOTIFY, guaranteed by a poll. An entry reaches each consumer at least once; consumers are idempotent. Each
consumer has room for so many deliveries at once, and is claimed for again as soon as it has room: one that is slow, or
hangs, delays no other.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.outcomes import Consumer, Delivered, OnDatabase, Outcome, Settled, Undelivered
from outbox.settling import Settling
from transactions import (
    Database,
    Fenced,
    Session,
    Wakeups,
    WorkerId,
    failpoint,
    is_transient,
    outbox,
    subscriptions,
    until_committed,
)
from transactions.outbox import Delivery

_log = logging.getLogger("surefoot.relay")
# What becomes free within so many looks is claimed for together, or sooner: when most of what was full is free.
_LOOK_S = 0.005
_LOOKS_MAX = 10
# How soon it looks again for a consumer whose limits left nothing to claim, at the soonest.
_LIMITED_S_MIN = 0.1
# How long a consumer that was told to stop may take for it; after that it is left to itself.
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Limits of one worker's relay.

    poll_s: the longest an entry lies unseen. lease_s: how long a claim is held without a sign of life; it is renewed
    while a consumer works. take_s_max: how long a consumer may take for one delivery. in_flight_max: deliveries of one
    consumer at once. backoff_s_max: the longest pause between two attempts.
    """

    poll_s: float = 1.0
    lease_s: float = 60.0
    take_s_max: float = 300.0
    in_flight_max: int = 20
    backoff_s_max: float = 300.0


class Relay:
    """The loop of one worker. `run_once` is one round; rounds of several workers pass over each other's claims."""

    def __init__(
        self,
        database: Database,
        consumers: Mapping[str, Consumer],
        *,
        agents: Sequence[str],
        worker_id: WorkerId,
        wakeups: Wakeups,
        still_mine: Callable[[], None],
        settings: RelaySettings | None = None,
    ) -> None:
        self._database = database
        self._consumers: Mapping[str, Consumer] = {
            name: consumer.on(database) if isinstance(consumer, OnDatabase) else consumer
            for name, consumer in consumers.items()
        }
        self._agents = agents
        self._worker_id = worker_id
        self._wakeups = wakeups
        self._still_mine = still_mine
        self._settings = settings or RelaySettings()
        self._settling = Settling(database, still_mine, backoff_s_max=self._settings.backoff_s_max)
        self._in_flight: Mapping[str, set[asyncio.Task[None]]] = {name: set() for name in consumers}
        self._full: frozenset[str] = frozenset()  # consumers for which the last claim left no room
        self._again_s = self._settings.poll_s  # in which a limit of a consumer leaves room again, if that is sooner
        self._more = asyncio.Event()  # there may be something to claim that no notification tells of
        self._fenced: Fenced | None = None

    @property
    def consumers(self) -> Sequence[str]:
        """The names it delivers to."""
        return sorted(self._consumers)

    async def run(self) -> None:
        """Until cancelled, or Fenced. What is in flight when it is cancelled goes on: see `drain`."""
        try:
            while True:
                try:
                    await self._claim()
                except Exception as error:
                    if not is_transient(error):
                        _log.exception("a round of the relay failed; the next one tries again")
                await self._rest()
                if self._fenced is not None:
                    raise self._fenced
        except Fenced:
            await self._abandon()
            raise

    async def run_once(self) -> int:
        """Claim what is due, deliver it and wait for that. Returns how many deliveries were claimed."""
        started = await self._claim()
        try:
            if started:
                await asyncio.wait(started)
        except asyncio.CancelledError:
            await self._abandon()
            raise
        if self._fenced is not None:
            raise self._fenced
        return len(started)

    async def drain(self, timeout_s: float) -> None:
        """Wait for what is in flight; what takes longer is given up, and its claim is free when this worker is gone."""
        if tasks := set[asyncio.Task[None]]().union(*self._in_flight.values()):
            await asyncio.wait(tasks, timeout=timeout_s)
        await self._abandon()

    async def _abandon(self) -> None:
        await _stop(set[asyncio.Task[None]]().union(*self._in_flight.values()))
        await self._settling.stop()

    async def _rest(self) -> None:
        """Until there may be something to claim: a notification, a poll that is due, or what became free."""
        poll_s = min(self._settings.poll_s, self._again_s) * random.uniform(0.75, 1.0)  # noqa: S311  jitter, not a secret
        waiting: set[asyncio.Task[Any]] = {
            asyncio.create_task(self._wakeups.wait("outbox", poll_s)),
            asyncio.create_task(self._more.wait()),
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if self._more.is_set():
            await self._gather_room()

    async def _gather_room(self) -> None:
        """One claim for many costs as much as a claim for one."""
        few = self._settings.in_flight_max // 4
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_LOOK_S)
            if all(len(self._in_flight[name]) <= few for name in self._full):
                return

    async def _claim(self) -> Sequence[asyncio.Task[None]]:
        """Claim as much for each consumer as it has room for, and begin to deliver that."""
        self._still_mine()
        self._more.clear()
        room = {name: self._settings.in_flight_max - len(tasks) for name, tasks in self._in_flight.items()}
        self._full = frozenset(name for name, free in room.items() if free <= 0)
        if len(self._full) == len(room):
            return ()
        async with self._database.all_tenants("relay.claim") as session:
            deliveries = await self._claim_each(session, {name: room[name] for name in room if room[name] > 0})
        return [self._begin(delivery) for delivery in deliveries]

    async def _claim_each(self, session: Session, room: Mapping[str, int]) -> Sequence[Delivery]:
        """Each consumer by itself: a backlog of one does not use the room of another."""
        deliveries: list[Delivery] = []
        full = set(self._full)
        self._again_s = self._settings.poll_s
        limited = await subscriptions.allowances(session, sorted(room), limit=self._settings.in_flight_max)
        for name in sorted(room):
            free = room[name]
            if (allowance := limited.get(name)) is not None:
                free = min(free, allowance.deliveries)
                if allowance.again_s > 0:
                    self._again_s = min(self._again_s, max(allowance.again_s, _LIMITED_S_MIN))
            if free < 1:
                full.add(name)
                continue
            claimed = await outbox.claim_due(
                session,
                consumers=[name],
                agents=self._agents,
                worker_id=self._worker_id,
                lease_s=self._settings.lease_s,
                limit=free,
            )
            deliveries += claimed
            if name in limited and claimed:
                await subscriptions.spend(session, name, len(claimed))
            if len(claimed) == free:
                full.add(name)
        self._full = frozenset(full)
        return deliveries

    def _begin(self, delivery: Delivery) -> asyncio.Task[None]:
        name = f"delivery of {delivery.entry_id} to {delivery.consumer}"
        task = asyncio.create_task(self._deliver(delivery), name=name)
        self._in_flight[delivery.consumer].add(task)
        task.add_done_callback(lambda task: self._ended(task, delivery.consumer))
        return task

    def _ended(self, task: asyncio.Task[None], consumer: str) -> None:
        self._in_flight[consumer].discard(task)
        if consumer in self._full:
            self._more.set()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Fenced):
            self._fenced = error
            self._more.set()
        elif error is not None:
            _log.error("%s was left to its lease", task.get_name(), exc_info=error)

    async def _deliver(self, delivery: Delivery) -> None:
        self._still_mine()
        outcome = await self._take(delivery)
        failpoint("relay.after_take")
        if isinstance(outcome, Settled):
            if outcome.delivered:
                self._more.set()
            return
        if not await self._settling.settle(delivery, outcome):
            _log.warning(
                "%s to %s: attempt %d no longer held the claim", delivery.entry_id, delivery.consumer, delivery.attempt
            )
        elif isinstance(outcome, Delivered):
            self._more.set()  # the next one of its key may go

    async def _take(self, delivery: Delivery) -> Outcome:
        if delivery.taken is not None:
            return Delivered(delivery.taken["receipt"], "taken before")
        if delivery.attempt > delivery.attempts_max:  # nobody lived to bury it: it may be what they died of
            return Undelivered(f"{delivery.attempts_max} attempts ended without an answer", final=True)
        take = asyncio.create_task(self._consumers[delivery.consumer].take(delivery))
        try:
            return await self._kept(delivery, take)
        except Exception as error:
            return Undelivered(f"{type(error).__name__}: {error}".rstrip(": "))
        finally:
            if not take.done():
                await _stop({take})

    async def _kept(self, delivery: Delivery, take: asyncio.Task[Outcome]) -> Outcome:
        """What the consumer answers, its claim renewed meanwhile; or why it has to stop."""
        clock = asyncio.get_running_loop().time
        step_s = self._settings.lease_s / 3  # one to wait, one to renew, and one is left of the lease
        ends_at = clock() + self._settings.take_s_max
        while True:
            await asyncio.wait({take}, timeout=max(0.0, min(step_s, ends_at - clock())))
            if take.done():
                return take.result()
            if clock() >= ends_at:
                return Undelivered(f"no answer within {self._settings.take_s_max:g} s")
            try:
                async with asyncio.timeout(step_s):
                    held = await until_committed(lambda: self._renew(delivery), self._still_mine)
            except TimeoutError:
                held, why = False, "could not be renewed"
            else:
                why = "was lost"
            if not held and not take.done():
                return Undelivered(f"stopped: its claim {why}")

    async def _renew(self, delivery: Delivery) -> bool:
        async with self._database.transaction("relay.renew", delivery.tenant) as session:
            return await outbox.renew(
                session,
                delivery.entry_id,
                delivery.consumer,
                attempt=delivery.attempt,
                worker_id=delivery.worker_id,
                lease_s=self._settings.lease_s,
            )


async def _stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel them and wait for that, but not for ever: nobody can end a task that goes on regardless."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_STOP_S)
