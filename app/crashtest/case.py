"""One case: a run in a database of its own, whose workers are struck one after the other until nobody strikes any more.

The driver starts the run, forks each worker armed with the next fault, decides approvals as a person would, wakes what
was stopped, and ends when the run has ended and is quiet, or when nothing has been heard of it for too long.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.crashtest import judge as judging
from app.crashtest.faults import CONNECTION, MOMENT, Fault
from app.crashtest.ground import Ground
from app.crashtest.judge import Finding, Picture
from app.crashtest.outcome import Case, Outcome, Strike
from app.crashtest.proxy import LostResponses, through
from app.surefoot import Surefoot
from transactions import Conflict, failpoints
from transactions.clones import clone

_LOOK_S = 0.05
_WOKEN_S = 5.0
_LEASES = 2.0
_STATUS = """
select r.state, r.event_seq, r.generation, r.ended_at is not null as ended,
       (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
         where e.run_id = r.run_id and d.state in ('parked', 'pending', 'claimed')) as deliveries,
       (select coalesce(sum(d.attempt), 0) from surefoot.outbox_deliveries d
          join surefoot.outbox_entries e using (entry_id) where e.run_id = r.run_id) as attempts,
       (select count(*) from dbos.workflow_status w where starts_with(w.workflow_uuid, r.run_id || ':')
           and w.status in ('PENDING', 'ENQUEUED', 'DELAYED')) as workflows,
       (select coalesce(array_agg(w.pid), '{}') from surefoot.workers w where w.state = 'dead') as dead
  from surefoot.runs r where r.run_id = :run_id"""


@dataclass(slots=True)
class _Worker:
    pid: int
    fault: Fault | None
    stopped_at: float | None = None
    woken_at: float | None = None
    timer: asyncio.TimerHandle | None = None


async def play(ground: Ground, case: Case, undisturbed: Picture | None) -> Outcome:
    """Play a case to its end and judge it. Without `undisturbed` it is looked at and not judged."""
    async with clone(ground.server_url, f"{ground.template}_{case.name}", template=ground.template) as url:
        folder = ground.folder / case.name
        folder.mkdir()
        surefoot = Surefoot(url, ground.agents)
        try:
            run_id = await surefoot.start(ground.subject.agent, ground.subject.input)
            lost = LostResponses(frozenset(fault.passage for fault in case.faults if fault.kind == "lost-response"))
            async with through(lost, ground.subject.env(run_id)) as env:
                driver = _Driver(ground, case, folder, surefoot, run_id, env, lost)
                try:
                    ended = await driver.drive()
                finally:
                    await driver.end_workers()
                return await driver.outcome(undisturbed, ended=ended)
        finally:
            await surefoot.close()


@dataclass(slots=True)
class _Driver:
    ground: Ground
    case: Case
    folder: Path
    surefoot: Surefoot
    run_id: str
    env: Mapping[str, str]
    lost: LostResponses
    began: float = field(default_factory=time.monotonic)
    strikes: list[Strike] = field(default_factory=list[Strike])
    exits: list[int] = field(default_factory=list[int])
    deaths: int = 0
    _current: _Worker | None = None
    _stopped: list[_Worker] = field(default_factory=list[_Worker])
    _forked: int = 0

    async def drive(self) -> bool:
        """True when the run ended and became quiet; False when nothing went on for too long, or it was put aside."""
        heard, seen = time.monotonic(), None
        while True:
            status = await self._status()
            self._note_recovery(status)
            await self._workers(status)
            if _is_over(status) and not self._stopped:
                return True
            mark = (status["event_seq"], status["generation"], status["attempts"], self._forked, len(self._stopped))
            if mark != seen:
                heard, seen = time.monotonic(), mark
            elif time.monotonic() - heard > self.ground.pace.stuck_s:
                return False
            if status["state"] == "held" and not self._stopped:
                return False
            await self._decide()
            await asyncio.sleep(_LOOK_S)

    async def _status(self) -> Mapping[str, Any]:
        return (await self._query(_STATUS, run_id=self.run_id))[0]

    async def _query(self, sql: str, **parameters: object) -> Any:
        return await self.surefoot.database.query(self.surefoot.tenant, sql, **parameters)

    async def _decide(self) -> None:
        """Approve whatever the subject's role is asked for."""
        for row in await self.surefoot.pending_approvals():
            kind, _, name = str(row["approver"]).partition(":")
            if self.ground.subject.role not in (None, name):
                continue
            by, role = ("ada", name) if kind == "role" else (name, None)
            with contextlib.suppress(Conflict):
                await self.surefoot.decide(row["approval_id"], "approve", by=by, role=role)

    def _note_recovery(self, status: Mapping[str, Any]) -> None:
        for strike in self.strikes:
            if strike.unfinished and strike.recovered_s is None and status["event_seq"] > strike.event_seq:
                strike.recovered_s = time.monotonic() - strike.at

    # Workers.

    async def _workers(self, status: Mapping[str, Any]) -> None:
        """See who died or stopped, wake who has lost its lease, and have a worker at work."""
        if self._current is not None:
            await self._look_at(self._current)
        while self.lost.struck:
            pid = 0 if self._current is None else self._current.pid
            await self._strike(pid, Fault("lost-response", CONNECTION, self.lost.struck.pop()), CONNECTION)
        for worker in [*self._stopped]:
            await self._look_at_stopped(worker, status)
        if self._current is None:
            self._current = await self._fork()

    async def _fork(self) -> _Worker:
        mine = [fault for fault in self.case.faults if fault.kind != "lost-response"]
        fault = mine[self._forked] if self._forked < len(mine) else None
        armed = failpoints.TRACE if fault is None else fault.armed
        env = {
            **self.ground.forks.env,
            **self.ground.pace.env,
            **self.env,
            "DATABASE_URL": self.surefoot.database_url,
            failpoints.LOG: str(self._passages),
            **({} if armed is None else {failpoints.ARMED: armed}),
        }
        log = self.folder / f"worker-{self._forked}.log"
        self._forked += 1
        pid = await self.ground.forks.fork("app.cli", ["worker"], env=env, log=log, before=self.case.broken)
        timer = None
        if fault is not None and fault.point == MOMENT:
            timer = asyncio.get_running_loop().call_later(fault.passage / 1000, _kill, pid)
        return _Worker(pid, fault, timer=timer)

    @property
    def _passages(self) -> Path:
        return self.folder / "passages.log"

    def _passed(self, pid: int) -> list[str]:
        lines = self._passages.read_text().splitlines() if self._passages.exists() else []
        return [point for who, _, point in (line.partition(" ") for line in lines) if who == str(pid)]

    async def _look_at(self, worker: _Worker) -> None:
        code = await self.ground.forks.exit_code(worker.pid)
        fault = worker.fault
        stopped = code is None and fault is not None and fault.kind == "stop" and bool(self._passed(worker.pid))
        if code is None and not stopped:
            return
        self._current = None
        if worker.timer is not None:
            worker.timer.cancel()  # the pid may soon be another's
        if fault is not None and (stopped or code == -signal.SIGKILL):
            await self._strike(worker.pid, fault, next(iter(self._passed(worker.pid)), fault.point))
            self.deaths += not stopped
        elif code is not None:
            self.exits.append(code)
        if stopped:
            worker.stopped_at = time.monotonic()
            self._stopped.append(worker)

    async def _strike(self, pid: int, fault: Fault, point: str) -> None:
        now = await self._status()
        self.strikes.append(Strike(fault, pid, point, not _is_over(now), time.monotonic(), now["event_seq"]))

    async def _look_at_stopped(self, worker: _Worker, status: Mapping[str, Any]) -> None:
        assert worker.stopped_at is not None
        now = time.monotonic()
        if worker.woken_at is None:
            since = now - worker.stopped_at
            lease_s = self.ground.pace.lease_s
            if (since > lease_s and worker.pid in status["dead"]) or since > _LEASES * lease_s:
                worker.woken_at = now
                os.kill(worker.pid, signal.SIGCONT)
            return
        code = await self.ground.forks.exit_code(worker.pid)
        if code is None and now - worker.woken_at > _WOKEN_S:
            # It was stopped before it had a lease, so it is a worker like any other.
            _kill(worker.pid)
        elif code is not None:
            self.exits.append(code)
            self._stopped.remove(worker)

    async def end_workers(self) -> None:
        """SIGKILL to all that is left."""
        for worker in filter(None, [self._current, *self._stopped]):
            if worker.timer is not None:
                worker.timer.cancel()
            _kill(worker.pid)
            while await self.ground.forks.exit_code(worker.pid) is None:  # noqa: ASYNC110  it is asked of another process
                await asyncio.sleep(_LOOK_S / 5)

    async def outcome(self, undisturbed: Picture | None, *, ended: bool) -> Outcome:
        self._note_recovery(await self._status())
        seconds = time.monotonic() - self.began
        subject = self.ground.subject
        world = await asyncio.to_thread(subject.count, self.run_id)
        picture = await judging.look(self._query, self.run_id, world, subject.rows, subject.result)
        findings: list[Finding] = []
        if undisturbed is not None:
            findings = await judging.judge(self._query, self.run_id, picture, undisturbed, ended=ended)
        return Outcome(
            case=self.case,
            run_id=self.run_id,
            strikes=self.strikes,
            findings=findings,
            ended=ended,
            seconds=seconds,
            deaths=self.deaths,
            exits=self.exits,
            repeated=await judging.repeats(self._query, self.run_id),
            picture=picture,
            trace=[] if self._current is None else self._passed(self._current.pid),
        )


def _is_over(status: Mapping[str, Any]) -> bool:
    return bool(status["ended"]) and status["deliveries"] == 0 and status["workflows"] == 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
