"""Heals what a dead process left behind. In every worker; safe to run twice, and to die in the middle of."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import engine, machine
from app.router import Router
from app.tries import Tries
from steps.sharing import wake_sharers
from transactions import Database, Tenant, WorkerId, deciding, failpoint, is_transient, segments, workers

_log = logging.getLogger("surefoot.watchdog")
_BATCH = 200
_HOLD_S = 10.0


@dataclass(frozen=True, slots=True)
class Watchdog:
    """`run_once` is one round of all duties, in the order that fencing demands.

    hold_s: how long it may hang in a transaction before the server ends that, so that another watchdog goes on; twice
    that has to be less than a lease.
    """

    database: Database
    worker_id: WorkerId
    version: str
    every_s: float
    stalls_max: int
    still_mine: Callable[[], None]
    router: Router
    hold_s: float = _HOLD_S

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.run_once()
            except Exception as error:
                if not is_transient(error):
                    _log.exception("a round of the watchdog failed; the next one tries again")
            await asyncio.sleep(self.every_s * random.uniform(0.75, 1.25))  # noqa: S311

    async def run_once(self) -> None:
        """Whatever of it fails, the rest is done; then the first failure is raised."""
        self.still_mine()
        tries = Tries(_log)
        with tries.one():
            await self._bury_the_dead()
        with tries.one():
            unfenced = await self._fence(tries)
            with tries.one():
                await self.router.run_once()
            await self._hand_over(tries, but=unfenced)
        with tries.one():
            await self._restart_lost(tries)
        with tries.one():
            await self._settle_left_behind()
        with tries.one():
            await self._expire_approvals(tries)
        with tries.one():
            await self._wake_sharers()
        tries.end()

    async def _bury_the_dead(self) -> None:
        """Mark workers without a lease dead, and end what they have open at the server: with that, what they lock."""
        async with self.database.all_tenants("watchdog.bury") as session:
            if not await workers.watchdog_lock(session, hold_s=self.hold_s):
                return
            for worker_id in await workers.mark_expired(session):
                _log.warning("worker %s is dead: its lease expired", worker_id)
            for row in await workers.live_on_machine(session, machine.machine_id()):
                if machine.is_gone(row["pid"], row["pid_start"]):
                    reason = f"process {row['pid']} is gone"
                    if await workers.mark_gone(session, row["worker_id"], reason=reason):
                        _log.warning("worker %s is dead: %s", row["worker_id"], reason)
            found = await workers.sessions_of_dead(session)
        if found:
            await self._cut_off(found)

    async def _cut_off(self, found: Sequence[Mapping[str, Any]]) -> None:
        try:
            async with self.database.as_login("watchdog.cut") as session:
                await workers.end_sessions(session, found)
        except Exception as error:
            # Without it their transactions end by the server's own timeouts, in most cases as soon.
            _log.warning("sessions of dead workers could not be ended: %s", error)

    async def _fence(self, tries: Tries) -> Collection[str]:
        """Raise the generation of the runs of dead workers before anyone takes them over. Of whom that failed."""
        unfenced: set[str] = set()
        async with self.database.all_tenants("watchdog.fence") as session:
            if await workers.watchdog_lock(session, hold_s=self.hold_s):
                for worker_id in await workers.dead_with_pending(session):
                    with tries.one():
                        unfenced.add(worker_id)
                        async with session.begin_nested():
                            await workers.raise_generations(session, worker_id, limit=_BATCH)
                        unfenced.remove(worker_id)
        return unfenced

    async def _hand_over(self, tries: Tries, *, but: Collection[str]) -> None:
        """At every tick, not only at a death: half-done recoveries and claims of a woken executor heal too."""
        async with self.database.all_tenants("watchdog.look") as session:
            executors = await workers.orphaned_executors(session, version=self.version)
        for executor_id in executors:
            if executor_id in but:
                continue
            failpoint("watchdog.before_recover")
            with tries.one():
                for workflow_id in await engine.recover(executor_id):
                    _log.warning("took over %s from %s", workflow_id, executor_id)
            failpoint("watchdog.after_recover")

    async def _restart_lost(self, tries: Tries) -> None:
        async with self.database.all_tenants("watchdog.look") as session:
            found = await segments.lost(session, limit=_BATCH)
            superseded = await workers.superseded_workflows(session)
        for row in found:
            with tries.one():
                await self._restart(row)
        await engine.cancel(superseded)

    async def _restart(self, row: Mapping[str, Any]) -> None:
        run_id, n, why = row["run_id"], row["segment"], f"the engine says {row['status'] or 'nothing'}"
        async with self.database.transaction("watchdog.restart", Tenant(row["tenant"])) as session:
            if await segments.restart_lost(session, run_id=run_id, n=n, why=why, stalls_max=self.stalls_max):
                _log.warning("run %s goes on without its segment %d: %s", run_id, n, why)

    async def _settle_left_behind(self) -> None:
        async with self.database.all_tenants("watchdog.settle") as session:
            for run_id in await workers.settle_left_behind(session, limit=_BATCH):
                _log.warning("run %s left a segment behind that it does not wait for any more", run_id)

    async def _expire_approvals(self, tries: Tries) -> None:
        async with self.database.all_tenants("watchdog.look") as session:
            overdue = await deciding.overdue(session, limit=_BATCH)
        for approval_id, tenant in overdue:
            with tries.one():
                async with self.database.transaction("watchdog.expire", tenant) as session:
                    await deciding.expire(session, approval_id)

    async def _wake_sharers(self) -> None:
        """Runs that wait for an action of another run, and that nobody lived to wake after it settled."""
        await wake_sharers(self.database)
