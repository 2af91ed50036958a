"""One case: a run in a database of its own, whose workers are struck one after the other until nobody strikes any more.

The driver starts the run, keeps a worker at work, decides as a person would, says of what nobody can know what it finds
in the world, and ends when the run has ended and is quiet, or when nothing has been heard of it for too long.
"""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.crashtest import judge as judging
from app.crashtest.crew import Crew
from app.crashtest.faults import CANCELLED, CONNECTION_KINDS, DECIDED, SETTLED, STARTED, ConnectionKind, Fault
from app.crashtest.ground import Ground
from app.crashtest.judge import End, Picture, Struck, Verdict
from app.crashtest.outcome import Case, Outcome, Strike
from app.crashtest.person import act
from app.crashtest.plans import BEATS
from app.crashtest.proxy import Services, through
from app.surefoot import Surefoot
from transactions import Conflict, DatabaseUnavailable, Role, failpoints, until_committed
from transactions.clones import clone

_LOOK_S = 0.05
_WORKERS_MAX = 50  # one after the other: more than faults kill, so they die by themselves
_CASE_S_MAX = 900.0  # several times the longest sequence: what happens leads nowhere
_STATUS = """
select r.state, r.event_seq, r.generation, r.ended_at is not null as ended,
       (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
         where e.run_id = r.run_id and d.state in ('parked', 'pending', 'claimed')) as deliveries,
       exists (select 1 from surefoot.attempts t join surefoot.actions a using (action_id)
                where a.run_id = r.run_id and t.outcome = 'not_sent') as not_sent,
       (select coalesce(sum(d.attempt), 0) from surefoot.outbox_deliveries d
          join surefoot.outbox_entries e using (entry_id) where e.run_id = r.run_id) as attempts,
       (select count(*) from dbos.workflow_status w where starts_with(w.workflow_uuid, r.run_id || ':')
           and w.status in ('PENDING', 'ENQUEUED', 'DELAYED')) as workflows,
       (select count(*) from surefoot.actions a where a.run_id = r.run_id
           and a.state = 'UNKNOWN' and a.safety = 'at_most_once') as on_desk,
       (select coalesce(array_agg(w.pid), '{}') from surefoot.workers w where w.state = 'dead') as dead
  from surefoot.runs r where r.run_id = :run_id"""

Status = Mapping[str, Any]


async def play(ground: Ground, case: Case, undisturbed: Picture | None) -> Outcome:
    """Play a case to its end and judge it. Without `undisturbed` it is looked at and not judged."""
    async with clone(ground.server_url, f"{ground.template}_{case.name}", template=ground.template) as url:
        folder = ground.folder / case.name
        folder.mkdir()
        surefoot = Surefoot(url, ground.agents)
        try:
            driver = _Driver(ground, case, folder, surefoot)
            await driver.start()
            wrong: dict[int, ConnectionKind] = {
                fault.passage: kind for fault in case.faults for kind in CONNECTION_KINDS if fault.kind == kind
            }
            services = Services(wrong)
            async with AsyncExitStack() as stack:
                env = ground.subject.env(driver.run_id)
                if wrong or undisturbed is None:
                    env = await stack.enter_async_context(through(services, env))
                crew = Crew(ground, case, folder, url, env, services, driver.note)
                try:
                    end = await driver.drive(crew)
                finally:
                    await crew.end()
                return await driver.outcome(crew, undisturbed, end)
        finally:
            await surefoot.close()


@dataclass(slots=True)
class _Driver:
    ground: Ground
    case: Case
    folder: Path
    surefoot: Surefoot
    run_id: str = ""
    began: float = field(default_factory=time.monotonic)
    strikes: list[Strike] = field(default_factory=list[Strike])
    deaths: int = 0

    async def start(self) -> None:
        """Start the run, after the processes that were to start it and were killed."""
        subject = self.ground.subject
        deed = {"do": "start", "agent": subject.agent, "input": subject.input, "key": self.case.name}
        await self._struck_first(STARTED, deed)
        self.run_id = await act(self.surefoot, deed)

    async def drive(self, crew: Crew) -> End:
        heard, seen = time.monotonic(), None
        while True:
            status = await self._status()
            self._note_recovery(status)
            if status["not_sent"]:
                crew.services.open()
            await crew.look(frozenset(status["dead"]))
            if not crew.away and (end := _end(status)) is not None:
                return end
            mark = (status["event_seq"], status["generation"], status["attempts"], crew.forked, crew.away)
            if mark != seen:
                heard, seen = time.monotonic(), mark
            elif time.monotonic() - heard > self.ground.pace.stuck_s:
                return "stuck"
            if crew.forked > _WORKERS_MAX or time.monotonic() - self.began > _CASE_S_MAX:
                return "stuck"
            if status["state"] == "held" and not crew.away:
                return "stuck"
            with contextlib.suppress(Conflict, DatabaseUnavailable):
                if not self._people_wait(status):
                    await self._decide()
                if not crew.away and _rests_on_the_desk(status):
                    await self._settle()
            await asyncio.sleep(_LOOK_S)

    async def note(self, pid: int, fault: Fault, point: str) -> None:
        """A fault has struck a worker."""
        now = await self._status()
        unfinished = _end(now) is None
        self.strikes.append(Strike(fault, pid, point, unfinished, time.monotonic(), now["event_seq"]))

    async def _status(self) -> Status:
        return (await self._query(_STATUS, run_id=self.run_id))[0]

    async def _query(self, sql: str, **parameters: object) -> Any:
        database, tenant = self.surefoot.database, self.surefoot.tenant
        return await until_committed(lambda: database.query(tenant, sql, **parameters), lambda: None)

    def _note_recovery(self, status: Status) -> None:
        for strike in self.strikes:
            if strike.unfinished and strike.recovered_s is None and status["event_seq"] > strike.event_seq:
                strike.recovered_s = time.monotonic() - strike.at

    # People.

    def _people_wait(self, status: Status) -> bool:
        """People take their time while a fault is still to strike what happens now and then."""
        if self.ground.subject.unhurried and status["state"] != "waiting":
            return True
        struck = {strike.fault for strike in self.strikes}
        missing = any(fault not in struck and fault.point.startswith(BEATS) for fault in self.case.faults)
        return missing and time.monotonic() - self.began < 2 * self.ground.pace.lease_s

    async def _decide(self) -> None:
        """Say to whatever the subject's role is asked for what the subject's person says."""
        subject = self.ground.subject
        for row in await self.surefoot.pending_approvals():
            kind, _, name = str(row["approvers"][0]).partition(":")
            if subject.role not in (None, name):
                continue
            if subject.person == "cancel":
                await self._do(CANCELLED, {"do": "cancel", "run": self.run_id})
                continue
            # What supersedes another is what was changed, or is asked about anew.
            changes = (
                subject.changes.get(row["tool"]) if subject.person == "approve" and not row["supersedes"] else None
            )
            asked = {"approval": row["approval_id"], "decision": subject.person, "changes": changes}
            people = ["ada", *(f"ada{n}" for n in range(2, row["people_min"] + 1))] if kind == "role" else [name]
            for by in people:
                if by not in row["agreed"]:
                    await self.surefoot.set_principal(by, roles=[Role.APPROVER, name])
                    await self._do(DECIDED, {"do": "decide", **asked, "by": by, "reason": "the case says so"})

    async def _do(self, point: str, deed: Mapping[str, Any]) -> None:
        await self._struck_first(point, deed)
        await act(self.surefoot, deed)

    async def _settle(self) -> None:
        """Of what nobody knows, say what the world has: it happened, or, when nothing can arrive now, it did not."""
        for row in (await self.surefoot.desk()).unknown:
            look = self.ground.subject.at_most_once.get(row["tool"])
            if look is None:
                continue
            found = await asyncio.to_thread(look, row)
            if not found and "absent" not in row["can"]:
                continue
            said = {"outcome": "succeeded", "result": found[0]} if found else {"outcome": "absent", "result": None}
            deed = {"do": "settle", "action": row["action_id"], **said, "reason": "looked into the world"}
            await self._do(SETTLED, deed)

    async def _struck_first(self, point: str, deed: Mapping[str, Any]) -> None:
        """Let those processes do it first that the case kills at it."""
        forks = self.ground.forks
        done = {strike.fault for strike in self.strikes}
        for fault in self.case.faults:
            if fault in done or not fault.of_person or not fault.point.startswith(point) or fault.armed is None:
                continue
            env = {**forks.env, "DATABASE_URL": self.surefoot.database_url, failpoints.ARMED: fault.armed}
            log = self.folder / "person.log"
            pid = await forks.fork("app.crashtest.person", [json.dumps(deed)], env=env, log=log)
            while (code := await forks.exit_code(pid)) is None:  # noqa: ASYNC110  it is asked of another process
                await asyncio.sleep(_LOOK_S / 5)
            if code == -signal.SIGKILL:
                seq = 0 if not self.run_id else (await self._status())["event_seq"]
                unfinished = True  # what the person wanted is still to be done, or has only just been done
                self.strikes.append(Strike(fault, pid, fault.point, unfinished, time.monotonic(), seq))
                self.deaths += 1

    # The verdict.

    async def outcome(self, crew: Crew, undisturbed: Picture | None, end: End) -> Outcome:
        self._note_recovery(await self._status())
        seconds = time.monotonic() - self.began
        subject = self.ground.subject
        world = await asyncio.to_thread(subject.count, self.run_id)
        picture = await judging.look(self._query, self.run_id, world, subject.rows, subject.result)
        verdict = Verdict("recovered")
        if undisturbed is not None:
            strikes = [
                Struck(strike.fault.kind, strike.point, strike.event_seq)
                for strike in self.strikes
                if not strike.point.startswith(SETTLED)  # it is no reason to ask a person: one was asked
            ]
            verdict = await judging.judge(
                self._query,
                self.run_id,
                picture,
                undisturbed,
                end=end,
                strikes=strikes,
                at_most_once=frozenset(subject.at_most_once),
            )
        return Outcome(
            case=self.case,
            run_id=self.run_id,
            strikes=self.strikes,
            verdict=verdict,
            end=end,
            seconds=seconds,
            deaths=self.deaths + crew.deaths,
            exits=crew.exits,
            repeated=await judging.repeats(self._query, self.run_id),
            picture=picture,
            trace=crew.trace(),
            connections=crew.services.connections,
        )


def _end(status: Status) -> End | None:
    """How the run has come to rest, if it has."""
    if status["workflows"]:
        return None
    if status["ended"] and status["deliveries"] == 0:
        return "ended"
    return None


def _rests_on_the_desk(status: Status) -> bool:
    """Whether all that is left of the run is what a person has to say something of."""
    return not status["workflows"] and status["state"] == "waiting" and 0 < status["on_desk"] == status["deliveries"]
