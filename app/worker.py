"""A worker: one process start that claims segments, delivers entries and watches over the others."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app import engine, machine
from app.interrupts import Interrupts
from app.segment import Segments
from app.settings import Settings
from app.sweeper import Sweeper
from app.watchdog import Watchdog
from outbox import Relay, Subscription
from steps import DurableAgent
from steps.effects import Effects
from transactions import ArtifactStore, Database, Session, Wakeups, WorkerId, epochs, subscriptions, workers
from transactions.access import require_worker
from transactions.database import connector
from transactions.lease import Lease

_log = logging.getLogger("surefoot.worker")


@dataclass(slots=True)
class Worker:
    """Built by `app.wiring`; `start()` before anything is claimed, `stop()` hands on what is unfinished."""

    settings: Settings
    database: Database
    agents: Mapping[str, DurableAgent[Any]]
    subscriptions: Sequence[Subscription]
    worker_id: WorkerId
    version: str
    lease: Lease
    wakeups: Wakeups
    effects: Effects
    store: ArtifactStore
    sweeper: Sweeper
    relay: Relay
    watchdog: Watchdog
    interrupts: Interrupts
    segments: Segments
    draining: asyncio.Event
    end: Callable[[str], None]
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]], init=False)

    async def start(self) -> None:
        """The lease row exists before the engine is launched, so that no claim is ever without an owner."""
        await require_worker(self.database.url)
        await self.store.check()
        await self._arrive()
        registered_at = asyncio.get_running_loop().time()
        async with self.database.all_tenants("worker.register") as session:
            await workers.register(
                session,
                worker_id=self.worker_id,
                version=self.version,
                host=socket.gethostname(),
                machine=machine.machine_id(),
                pid=os.getpid(),
                pid_start=machine.pid_start(os.getpid()) or "unknown",
                lease_s=self.settings.lease_s,
                consumers=self.relay.consumers,
            )
            await self._announce(session)
        self.lease.start(registered_at)
        await self.wakeups.start()
        await engine.launch(
            engine.EngineSettings(
                url=self.database.url,
                connect=connector(self.database.url, self.database.access.unbound),
                executor_id=self.worker_id,
                version=self.version,
                queue_poll_s=self.settings.queue_poll_s,
                runs_at_once=self.settings.runs_at_once,
                idle_transaction_s=self.database.limits.idle_in_transaction_s,
            ),
            self.segments.execute,
        )
        loops: Sequence[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = (
            ("relay", self.relay.run),
            ("watchdog", self.watchdog.run),
            ("interrupts", self.interrupts.run),
            ("sweeper", self.sweeper.run),
        )
        self._tasks = [asyncio.create_task(loop(), name=name) for name, loop in loops]

    async def _arrive(self) -> None:
        """Before anything of this worker is there: if the database was restored, what is open is looked for first."""
        async with self.database.all_tenants("worker.arrive") as session:
            here, begun = await epochs.arrive(session, by=self.worker_id)
        if begun is not None:
            _log.warning(
                "the database is not where it was: epoch %d begins, and %d effects are looked for before they are sent",
                begun.epoch,
                begun.effects,
            )
        self.database.stay_at(here, self.end)

    async def _announce(self, session: Session) -> None:
        """What this worker serves, in one order everywhere: each locks its row."""
        for _, agent in sorted(self.agents.items()):
            await workers.announce_agent(
                session,
                name=agent.name,
                version=agent.version,
                input_schema=agent.input.json_schema(),
                limits=agent.limits.of_states,
            )
        for one in sorted(self.subscriptions, key=lambda one: one.name):
            await subscriptions.announce(
                session,
                consumer=one.name,
                topics=one.topics,
                passes_dead=one.passes_dead,
                in_flight_max=one.in_flight_max,
                per_second_max=one.per_second_max,
            )

    async def stop(self) -> None:
        """Stop claiming, let segments end at their next boundary, finish what was sent, release the lease."""
        self.draining.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(engine.destroy(self.settings.drain_s), self.relay.drain(self.settings.drain_s))
        await self.effects.drain(self.settings.drain_s)
        await self.store.close()
        await self.wakeups.stop()
        self.lease.stop()
        async with self.database.all_tenants("worker.release") as session:
            await workers.release(session, self.worker_id)
