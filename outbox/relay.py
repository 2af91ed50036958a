"""Moves entries to their consumers: claims what is due, delivers, and settles the very attempt it claimed.

Woken by NOTIFY, guaranteed by a poll. An entry reaches each consumer at least once; consumers are idempotent.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from transactions import Database, Fenced, Wakeups, WorkerId, failpoint, is_transient, outbox, until_committed
from transactions.outbox import Delivery

_log = logging.getLogger("surefoot.relay")


@dataclass(frozen=True, slots=True)
class Delivered:
    """The consumer took it; `receipt` is its answer."""

    receipt: JsonValue = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Not now: tried again after a pause that doubles, or never when `final`."""

    detail: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The consumer has settled the delivery in a commit of its own."""


Outcome = Delivered | Undelivered | Settled


class Consumer(Protocol):
    """Takes entries of one name, idempotently by `delivery.entry_id`. An exception counts as Undelivered."""

    async def take(self, delivery: Delivery) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """`poll_s`: the longest an entry lies unseen. `lease_s`: how long a consumer may take. `batch`: claimed at once."""

    poll_s: float = 1.0
    lease_s: float = 60.0
    batch: int = 20
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
        self._consumers = consumers
        self._agents = agents
        self._worker_id = worker_id
        self._wakeups = wakeups
        self._still_mine = still_mine
        self._settings = settings or RelaySettings()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                claimed = await self.run_once()
            except Exception as error:
                if not is_transient(error):
                    _log.exception("a round of the relay failed; the next one tries again")
                claimed = 0
            if claimed < self._settings.batch:
                await self._wakeups.wait("outbox", self._settings.poll_s * random.uniform(0.75, 1.0))  # noqa: S311

    async def run_once(self) -> int:
        """Claim what is due and deliver it. Returns how many deliveries were claimed."""
        self._still_mine()
        async with self._database.all_tenants("relay.claim") as session:
            deliveries = await outbox.claim_due(
                session,
                consumers=list(self._consumers),
                agents=self._agents,
                worker_id=self._worker_id,
                lease_s=self._settings.lease_s,
                limit=self._settings.batch,
            )
        results = await asyncio.gather(*(self._deliver(delivery) for delivery in deliveries), return_exceptions=True)
        for result in results:
            if isinstance(result, Fenced | asyncio.CancelledError):
                raise result
            if isinstance(result, BaseException):
                _log.error("a delivery was left to its lease", exc_info=result)
        return len(deliveries)

    async def _deliver(self, delivery: Delivery) -> None:
        self._still_mine()
        outcome = await self._take(delivery)
        failpoint("relay.after_take")
        if isinstance(outcome, Settled):
            return
        held = await until_committed(lambda: self._settle(delivery, outcome), self._still_mine)
        if not held:
            _log.warning(
                "%s to %s: attempt %d no longer held the claim", delivery.entry_id, delivery.consumer, delivery.attempt
            )

    async def _take(self, delivery: Delivery) -> Outcome:
        if delivery.taken is not None:
            return Delivered(delivery.taken["receipt"], "taken before")
        if delivery.attempt > delivery.attempts_max:  # nobody lived to bury it: it may be what they died of
            return Undelivered(f"{delivery.attempts_max} attempts ended without an answer", final=True)
        try:
            async with asyncio.timeout(self._settings.lease_s * 0.8):
                return await self._consumers[delivery.consumer].take(delivery)
        except Exception as error:
            return Undelivered(f"{type(error).__name__}: {error}".rstrip(": "))

    async def _settle(self, delivery: Delivery, outcome: Delivered | Undelivered) -> bool:
        async with self._database.transaction("relay.settle", delivery.tenant) as session:
            if isinstance(outcome, Delivered):
                return await outbox.acknowledge(session, delivery, receipt=outcome.receipt, detail=outcome.detail)
            if outcome.final or delivery.attempt >= delivery.attempts_max:
                return await outbox.bury(session, delivery, detail=outcome.detail)
            pause_s = min(0.5 * 2.0 ** min(delivery.attempt, 20), self._settings.backoff_s_max)
            return await outbox.back_off(session, delivery, pause_s=pause_s, detail=outcome.detail)
