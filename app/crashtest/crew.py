"""The workers of a case: one at work, struck as the case says, and those that were stopped or cut off meanwhile."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.crashtest.faults import CONNECTION, LEAVING, MOMENT, Fault
from app.crashtest.ground import Ground
from app.crashtest.line import Line
from app.crashtest.outcome import Case
from app.crashtest.proxy import Services
from transactions import failpoints

_WOKEN_S = 5.0
_LEASES = 2.0
_LOOK_S = 0.01

OnStrike = Callable[[int, Fault, str], Awaitable[None]]


@dataclass(slots=True)
class _Worker:
    """`away_at`: since when it is stopped or cut off; `back_at`: since when it is not any more."""

    pid: int
    fault: Fault | None
    line: Line | None = None
    away_at: float | None = None
    back_at: float | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Crew:
    """`on_strike` is told of each fault that was seen to strike: the process, the fault, the point it was at."""

    ground: Ground
    case: Case
    folder: Path
    database_url: str
    env: Mapping[str, str]
    services: Services
    on_strike: OnStrike
    exits: list[int] = field(default_factory=list[int])
    deaths: int = 0
    forked: int = 0
    _current: _Worker | None = None
    _away: list[_Worker] = field(default_factory=list[_Worker])

    @property
    def away(self) -> int:
        """How many are stopped or cut off, or have only just come back."""
        return len(self._away)

    @property
    def _mine(self) -> list[Fault]:
        return [fault for fault in self.case.faults if fault.of_worker]

    async def look(self, dead: frozenset[int]) -> None:
        """See who died or stopped, bring back who has lost its lease, and have a worker at work.

        dead: process ids of workers that others have declared dead.
        """
        if self._current is not None:
            await self._look_at(self._current)
        while self.services.struck:
            number = self.services.struck.pop()
            fault = Fault(self.services.kinds[number], CONNECTION, number)
            await self.on_strike(0 if self._current is None else self._current.pid, fault, CONNECTION)
        for worker in [*self._away]:
            await self._look_at_away(worker, dead)
        if self._current is None:
            self._current = await self._fork()

    async def end(self) -> None:
        """SIGKILL to all that is left."""
        for worker in filter(None, [self._current, *self._away]):
            _kill(worker.pid)
            while await self.ground.forks.exit_code(worker.pid) is None:  # noqa: ASYNC110  it is asked of another process
                await asyncio.sleep(_LOOK_S)
            self._gone(worker)

    def trace(self) -> list[str]:
        """The points that the last worker passed, if no fault was left for it."""
        return [] if self._current is None else self._passed(self._current.pid)

    async def _fork(self) -> _Worker:
        fault = self._mine[self.forked] if self.forked < len(self._mine) else None
        armed = failpoints.TRACE if fault is None else fault.armed
        worker = _Worker(0, fault)
        database_url = self.database_url
        if fault is not None and fault.kind == "partition":
            worker.line = Line()
            database_url = await worker.line.open(database_url)
        env = {
            **self.ground.forks.env,
            **self.ground.pace.env,
            **self.env,
            "DATABASE_URL": database_url,
            failpoints.LOG: str(self._passages),
            **({} if armed is None else {failpoints.ARMED: armed}),
        }
        log = self.folder / f"worker-{self.forked}.log"
        self.forked += 1
        worker.pid = await self.ground.forks.fork("app.cli", ["worker"], env=env, log=log, before=self.case.broken)
        loop = asyncio.get_running_loop()
        if fault is not None and fault.point == MOMENT:
            worker.timer = loop.call_later(fault.passage / 1000, _kill, worker.pid)
        elif fault is not None and fault.point.startswith(LEAVING):
            worker.timer = loop.call_later(self.ground.pace.leave_after_s, os.kill, worker.pid, signal.SIGTERM)
        return worker

    @property
    def _passages(self) -> Path:
        return self.folder / "passages.log"

    def _passed(self, pid: int) -> list[str]:
        lines = self._passages.read_text().splitlines() if self._passages.exists() else []
        return [point for who, _, point in (line.partition(" ") for line in lines) if who == str(pid)]

    async def _look_at(self, worker: _Worker) -> None:
        code = await self.ground.forks.exit_code(worker.pid)
        fault = worker.fault
        at = next(iter(self._passed(worker.pid)), None) if fault is not None else None
        if code is None:
            if fault is not None and fault.kind != "kill" and at is not None:
                await self._halted(worker, fault, at)
            return
        self._current = None
        self._gone(worker)
        if fault is not None and code == -signal.SIGKILL:
            await self.on_strike(worker.pid, fault, at or fault.point)
            self.deaths += 1
        else:
            self.exits.append(code)

    async def _halted(self, worker: _Worker, fault: Fault, at: str) -> None:
        """It has stopped where it was told to: do the rest."""
        if fault.kind == "db-restart":
            assert self.ground.restart is not None
            await self.ground.restart()
            worker.fault = None
        else:
            self._current = None
            self._away.append(worker)
            worker.away_at = time.monotonic()
        await self.on_strike(worker.pid, fault, at)
        if worker.line is not None:
            worker.line.hold()
        if fault.kind in ("partition", "db-restart"):
            os.kill(worker.pid, signal.SIGCONT)

    async def _look_at_away(self, worker: _Worker, dead: frozenset[int]) -> None:
        assert worker.away_at is not None
        now = time.monotonic()
        code = await self.ground.forks.exit_code(worker.pid)
        if code is not None:
            self.exits.append(code)
            self._away.remove(worker)
            self._gone(worker)
        elif worker.back_at is None:
            if self._may_come_back(worker, dead, now - worker.away_at):
                worker.back_at = now
                if worker.line is not None:
                    worker.line.release()
                else:
                    os.kill(worker.pid, signal.SIGCONT)
        elif now - worker.back_at > _WOKEN_S:
            _kill(worker.pid)  # it was away before it had a lease, so it is a worker like any other

    def _may_come_back(self, worker: _Worker, dead: frozenset[int], since_s: float) -> bool:
        """After its lease, when somebody has taken over; if it is frozen, after everything else has struck, too."""
        pace = self.ground.pace
        if worker.fault is not None and worker.fault.kind == "freeze" and since_s < pace.stuck_s / 2:
            # Before the next worker is there, so that it finds what was left, and nobody has put it right.
            struck = self.forked >= len(self._mine) and (self._current is None or self._current.fault is None)
            return struck and since_s > pace.lease_s and worker.pid in dead
        return (since_s > pace.lease_s and worker.pid in dead) or since_s > _LEASES * pace.lease_s

    def _gone(self, worker: _Worker) -> None:
        if worker.timer is not None:
            worker.timer.cancel()  # the pid may soon be another's
        if worker.line is not None:
            worker.line.cut()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
