"""The fleet's workers: one on each host, started anew whenever it ends, and struck while it works."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from app.crashtest import hosts
from app.crashtest.fleet_ground import ENTERS_HOST, FleetGround
from app.crashtest.hosts import Host
from transactions.lease import EXIT_LEASE_LOST

Blow = Literal["kill", "freeze", "cut"]
BLOWS: tuple[Blow, ...] = ("kill", "kill", "freeze", "cut")
_LOOK_S = 0.02
_WOKEN_S = 5.0
_READY = "surefoot works as "
# What a worker is at when it is struck.
_AT_WORK = """
select r.run_id, r.event_seq from surefoot.runs r
  join dbos.workflow_status d on d.workflow_uuid = r.run_id || ':' || r.segment and d.status = 'PENDING'
 where r.state = 'running' and d.executor_id = :worker_id"""
_NOW = "select clock_timestamp() as at"
_IS_DEAD = "select 1 from surefoot.workers where worker_id = :worker_id and state = 'dead'"

Query = Callable[..., Awaitable[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Hit:
    """A blow that struck a worker, and the runs that it was at, each with the number of its last event.

    at, until: just before it, and just after, by the database's clock.
    """

    blow: Blow
    worker_id: str
    at: datetime
    until: datetime
    runs: Sequence[tuple[str, int]]


@dataclass(slots=True)
class _Worker:
    """`pid`: of the process that waits for it, on this machine; `inner`: its own, as seen from here."""

    host: Host
    pid: int
    log: Path
    pid_file: Path
    worker_id: str | None = None
    struck: Blow | None = None

    @property
    def inner(self) -> int:
        return int(self.pid_file.read_text())


@dataclass(slots=True)
class Crew:
    """`keep()` runs as long as there shall be workers. `wrong`: what a worker did that it must not, in words."""

    ground: FleetGround
    query: Query
    hits: list[Hit] = field(default_factory=list[Hit])
    exits: list[tuple[Blow | None, int]] = field(default_factory=list[tuple[Blow | None, int]])
    wrong: list[str] = field(default_factory=list[str])
    _workers: dict[str, _Worker] = field(default_factory=dict[str, _Worker])
    _started: int = 0
    _leaving: bool = False

    async def keep(self) -> None:
        """Have a worker on each host, until `leave` is called and the last one has ended."""
        async with asyncio.TaskGroup() as group:
            for host in self.ground.network.hosts:
                group.create_task(self._keep(host))

    @property
    def up(self) -> list[str]:
        """Hosts whose worker works."""
        return [
            name for name, worker in self._workers.items() if worker.worker_id is not None and worker.struck is None
        ]

    async def strike(self, name: str, blow: Blow) -> None:
        """Strike the worker of this host, if it works. What it was at is noted just before."""
        worker = self._workers.get(name)
        if worker is None or worker.worker_id is None or worker.struck is not None:
            return
        at = await self._now()
        found = await self.query(_AT_WORK, worker_id=worker.worker_id)
        if worker.struck is not None or self._workers.get(name) is not worker:
            return
        worker.struck = blow
        if blow == "cut":
            self.ground.network.cut(worker.host)
        else:
            _signal(worker.inner, signal.SIGKILL if blow == "kill" else signal.SIGSTOP)
        runs = [(row["run_id"], row["event_seq"]) for row in found]
        self.hits.append(Hit(blow, worker.worker_id, at, await self._now(), runs))

    async def _now(self) -> datetime:
        return (await self.query(_NOW))[0]["at"]

    async def leave(self) -> None:
        """Once all of them are up, ask them to leave, and start none anew."""
        while len(self.up) < len(self.ground.network.hosts):  # noqa: ASYNC110  it is seen in other processes
            await asyncio.sleep(_LOOK_S)
        self._leaving = True
        for worker in self._workers.values():
            _signal(worker.inner, signal.SIGTERM)

    async def _keep(self, host: Host) -> None:
        while not self._leaving:
            worker = self._workers[host.name] = await self._start(host)
            code = await self._until_it_ends(worker)
            del self._workers[host.name]
            self.exits.append((worker.struck, code))
            if worker.struck == "cut":
                self.ground.network.mend(host)

    async def _start(self, host: Host) -> _Worker:
        number, self._started = self._started, self._started + 1
        log = self.ground.folder / f"{host.name}-{number}.log"
        pid_file = log.with_suffix(".pid")
        log.touch()  # it is looked into before there is a process that writes to it
        env = {**self.ground.env, hosts.HOST: host.namespace, hosts.PID_FILE: str(pid_file)}
        pid = await self.ground.forks.fork("app.cli", ["worker"], env=env, log=log, before=[ENTERS_HOST])
        return _Worker(host, pid, log, pid_file)

    async def _until_it_ends(self, worker: _Worker) -> int:
        struck_at: float | None = None
        while (code := await self.ground.forks.exit_code(worker.pid)) is None:
            if worker.worker_id is None and _READY in (said := worker.log.read_text(errors="replace")):
                worker.worker_id = said.partition(_READY)[2].split()[0]
            if worker.struck is not None:
                struck_at = struck_at or time.monotonic()
                await self._look_at_struck(worker, time.monotonic() - struck_at)
            await asyncio.sleep(_LOOK_S)
        if worker.struck in ("freeze", "cut") and code != EXIT_LEASE_LOST:
            self.wrong.append(
                f"{worker.worker_id} lost its lease ({worker.struck}) and ended with {code}: {worker.log}"
            )
        return code

    async def _look_at_struck(self, worker: _Worker, since_s: float) -> None:
        """Wake one that is frozen, once it is dead to the others; end one that does not, which is wrong."""
        lease_s = self.ground.pace.lease_s
        if worker.struck == "freeze" and _is_stopped(worker.inner):
            if since_s > lease_s and await self.query(_IS_DEAD, worker_id=worker.worker_id):
                _signal(worker.inner, signal.SIGCONT)
            return
        if since_s > 3 * lease_s + _WOKEN_S:
            _signal(worker.inner, signal.SIGKILL)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
