"""A worker: one process start that claims segments, delivers entries and watches over the others."""

import asyncio
import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app import engine, machine
from app.dispatcher import Dispatcher
from app.interrupts import Interrupts
from app.retention import Retention
from app.scheduler import Scheduler
from app.segment import Segments
from app.serving import serves
from app.settings import Settings
from app.sweeper import Sweeper
from app.watchdog import Watchdog
from outbox import Relay, Subscription
from steps import DurableAgent
from steps.effects import Effects
from transactions import (
    ArtifactStore,
    Database,
    Fenced,
    Session,
    Wakeups,
    WorkerId,
    epochs,
    subscriptions,
    versions,
    workers,
)
from transactions.access import require_worker
from transactions.connecting import application_name
from transactions.database import connector
from transactions.lease import Lease, now
from transactions.whereabouts import Whereabouts, looking

_TICKS, _INTERRUPTS = "ticks", "interrupts"
_WHILE_IT_DRAINS = (_TICKS, _INTERRUPTS)
_CANCEL_S = 0.25
_HAND_OVER_S = 2.5
_CLEAN_UP_S = 10.0
_SAY_S = 2.0
_LEAVING_S_MAX = 5.0

_log = logging.getLogger("surefoot.worker")


def leaving_s(drain_s: float) -> float:
    """How much of the time to drain is kept for what follows on segments and effects: to fence, hand over and close."""
    return min(_LEAVING_S_MAX, drain_s / 2)


@dataclass(slots=True)
class Worker:
    """Built by `app.wiring`; `start()` before anything is claimed, `stop()` hands on what is unfinished.

    duties: the database once more, with a few connections for what keeps the fleet alive, so that it waits for no tool.
    left: set once this worker has given up its lease by itself; from then on, being fenced is nothing to tell of.
    """

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
    retention: Retention
    relay: Relay
    watchdog: Watchdog
    dispatcher: Dispatcher
    scheduler: Scheduler
    interrupts: Interrupts
    segments: Segments
    draining: asyncio.Event
    end: Callable[[str], None]
    duties: Database
    left: threading.Event
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]], init=False)
    _stopped: bool = field(default=False, init=False)

    @property
    def _databases(self) -> Sequence[Database]:
        stores = self.store.database
        return [self.database, self.duties] if stores is None else [self.database, self.duties, stores]

    def still_mine(self) -> None:
        """Raises Fenced once the lease is lost; not when it was given up by this worker's own will."""
        if not self.left.is_set():
            self.lease.check()

    async def start(self) -> None:
        """The lease row exists before the engine is launched, so that no claim is ever without an owner. Only once that
        is, segments are handed to this worker, and its version becomes current: one that fails to start takes nothing,
        and closes what it has opened, but `database`.
        """
        try:
            await self._start()
        except BaseException:
            self._stopped = True
            await self._close(self.duties.close(), self.store.close())
            raise

    async def _start(self) -> None:
        await require_worker(self.database.url)
        await self.store.check()
        here = await self._arrive()
        registered_at = now()
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
                slots=self.settings.runs_at_once,
                agents=sorted(self.agents),
            )
            await self._announce(session)
        self.lease.start(registered_at)
        for one in self._databases:
            one.only_while(self.still_mine)
        try:
            await self._begin(here)
        except BaseException:
            self.left.set()
            engine.stop_claiming()
            self.left.set()
            await asyncio.to_thread(self.lease.release_now, "its worker could not start")  # nobody waits for its end
            await self._clean_up()
            raise

    async def _begin(self, here: Whereabouts) -> None:
        await self.wakeups.start()
        await engine.launch(
            engine.EngineSettings(
                url=self.database.url,
                connect=connector(
                    self.database.url,
                    self.database.limits,
                    application=application_name(self.worker_id),
                    role=self.database.access.unbound,
                    look=looking(here, self.end),
                ),
                executor_id=self.worker_id,
                version=self.version,
                queue_poll_s=self.settings.queue_poll_s,
                runs_at_once=self.settings.runs_at_once,
                idle_transaction_s=self.database.limits.idle_in_transaction_s,
                still_mine=self.still_mine,
            ),
            self.segments.execute,
        )
        async with self.database.all_tenants("worker.ready") as session:
            await workers.ready(session, self.worker_id)
            if await versions.begin(session, self.version):
                _log.info("version %r is new, and current from now on", self.version)
        loops: Sequence[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = (
            ("relay", self.relay.run),
            ("watchdog", self.watchdog.run),
            ("dispatcher", self.dispatcher.run),
            ("scheduler", self.scheduler.run),
            ("sweeper", self.sweeper.run),
            ("retention", self.retention.run),
            (_INTERRUPTS, self.interrupts.run),
            (_TICKS, self.lease.tick),
        )
        self._tasks = [asyncio.create_task(loop(), name=name) for name, loop in loops]

    async def _arrive(self) -> Whereabouts:
        """Before anything of this worker is there: if the database was restored, what is open is looked for first.

        Where it is. From then on nothing is done on a connection that finds it elsewhere.
        """
        async with self.database.all_tenants("worker.arrive") as session:
            here, begun = await epochs.arrive(session, by=self.worker_id)
        if begun is not None:
            _log.warning(
                "the database is not where it was: epoch %d begins, and %d effects are looked for before they are sent",
                begun.epoch,
                begun.effects,
            )
        for one in self._databases:
            one.stay_at(here, self.end)
        return here

    async def _announce(self, session: Session) -> None:
        """What this worker serves, in one order everywhere: each locks its row."""
        await versions.announce(session, self.version, serves(self.agents))
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
        """Stop claiming, let segments end at their next boundary and finish what was sent; before `drain_s` is over
        fence and hand over what is left and release the lease, which takes 3 s at most, whatever a tool or the
        database does. Safe to call again.

        A body that runs in a thread, or does not heed that it is cancelled, may outlast it and can write nothing more.
        Until everything is closed it may take 10 s more, for which a process that is only a worker does not wait.
        """
        self.draining.set()
        if self._stopped:
            return
        self._stopped = True
        engine.stop_claiming()
        ends_at = asyncio.get_running_loop().time() + self._to_a_boundary_s
        await self._say_that_it_drains()
        await self._end(task for task in self._tasks if task.get_name() not in _WHILE_IT_DRAINS)
        try:
            await self._drain(ends_at)
        except (Exception, Fenced) as error:
            _log.warning("could not wait for what is at work here (%s): it is handed over", error)
        self.left.set()  # who is fenced from here on is so by our own will
        self.lease.give_up()
        interrupted = self.interrupts.leave()
        await self._hand_over()
        await self._end([*interrupted, *self._tasks])
        await self._clean_up()
        self._tasks.clear()
        gc.collect()  # psycopg closes a connection that was cancelled while it was made only when it is collected

    def abandon(self) -> None:
        """What `stop` comes to, from a thread, when the loop does not answer any more: fence, release, hand over."""
        self.left.set()
        engine.stop_claiming()
        if self.lease.release_now(self._why):
            for workflow_id in engine.recover_now(self.worker_id):
                _log.warning("handed over %s", workflow_id)

    async def _clean_up(self) -> None:
        """Nothing of this worker's acts any more: close what it had open."""
        await self._close(
            self.relay.drain(0.0),
            self.effects.drain(0.0),
            self.wakeups.stop(),
            asyncio.to_thread(self.lease.stop),
            engine.destroy(),
            self.duties.close(),
            self.store.close(),
        )

    @staticmethod
    async def _close(*closing: Coroutine[Any, Any, Any]) -> None:
        """All of them, and wait for that a little."""
        _, left = await asyncio.wait({asyncio.create_task(one) for one in closing}, timeout=_CLEAN_UP_S)
        for one in left:
            one.cancel()

    async def _say_that_it_drains(self) -> None:
        """So that what its segments hand on goes to others. With the database away it is known once it has left."""
        try:
            async with (
                asyncio.timeout(min(_SAY_S, self.settings.drain_s)),
                self.duties.all_tenants("worker.drain") as session,
            ):
                await workers.drain(session, self.worker_id)
        except (Exception, Fenced) as error:
            _log.warning("could not say that it drains (%s): others know once it has left", error)

    async def _drain(self, ends_at: float) -> None:
        """Until nothing is at work here any more, or until then, in the loop's time."""

        def left_s() -> float:
            return max(0.0, ends_at - asyncio.get_running_loop().time())

        delivering = asyncio.create_task(self.relay.drain(left_s()))
        await engine.until_idle(left_s())
        await self.effects.until_idle(left_s())
        await asyncio.wait({delivering}, timeout=left_s())
        delivering.cancel()

    @property
    def _to_a_boundary_s(self) -> float:
        return self.settings.drain_s - leaving_s(self.settings.drain_s)

    @property
    def _why(self) -> str:
        return f"its worker left, and it came to no boundary within {self._to_a_boundary_s:g} s"

    async def _hand_over(self) -> None:
        """Fence what did not end, release the lease, and put its segments back into the queue. Bounded; if the database
        is away, others do it when the lease is over."""
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                async with self.duties.all_tenants("worker.release") as session:
                    left = await workers.release(session, self.worker_id, why=self._why)
                for workflow_id in await engine.recover(self.worker_id):
                    _log.warning("handed over %s", workflow_id)
            if left:
                _log.warning("fenced and handed over: runs %s", ", ".join(left))
        except (Exception, Fenced) as error:
            _log.warning("could not hand over (%s): others do, when the lease is over", error)

    @staticmethod
    async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Cancel them, and wait for that a little: nobody can end one that does not heed it."""
        cancelled = {task for task in tasks if not task.done()}
        for task in cancelled:
            task.cancel()
        if cancelled:
            await asyncio.wait(cancelled, timeout=_CANCEL_S)
