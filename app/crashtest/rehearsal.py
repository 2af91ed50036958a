"""The fast kit: an agent's everyday tests, with crashes and time, in one process.

    def test_ships_once(rehearsal):
        stage = rehearsal(my_agent)
        run = stage.start({"order": 1})
        stage.crash_at("effect.after_send")             # a worker works until it dies there
        stage.until("waiting")                          # a new one goes on
        stage.approve(run, by="ada", role="manager")
        assert stage.finish(run).state == "completed"

What a crash is here. From the moment a thread passes the point it never goes on, and with it all tasks of the worker's
loop: nothing more of the worker is written or sent, no `finally` and no `except` runs. The server loses its connections
and rolls back. Its lease stays as it is, its process is noted as one that is not found any more, and the next worker,
with an id of its own, concludes from that by its watchdog that it is dead, and takes over.

What it does not cover, and `crash_matrix` does, with real processes and SIGKILL:
- The memory of the process lives on: modules, caches, what a fake keeps, the agent itself. What a worker would lose
  with its process, the next one may still find.
- A plain `def` body of a tool runs on a thread of its own, as do subprocesses: one that is in the middle of its work
  when another task passes the point goes on to its end in the world, though nothing of it is recorded.
- A lost lease, a stopped worker that wakes up, two workers at once, a database or an outside that goes away.
- A death between two points, at start of the interpreter, or outside of Python.

A database is a clone of a template that is made once in a session. The worker, its engine, its line to the database and
its takeover are the product's own. Each crash leaves a sleeping thread and some open files until the process ends.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from app.acting import Acting
from app.crashtest.actor import Actor, armed, struck
from app.crashtest.theatre import PACE, Theatre
from app.loading import load_agents
from app.settings import Settings
from app.surefoot import Surefoot
from steps import DurableAgent
from transactions import DEFAULT_TENANT, Database, Principal, Role, RunId, RunState
from transactions import rehearsal as record
from transactions.deciding import Decision
from transactions.desk import Outcome

PATIENCE_S = 30.0
_IDLE_S = 1.0
_LOOK_S = 0.01

Look = Mapping[str, Any]


class RehearsalFailed(AssertionError):
    """A run did not get where the test said it would; the message says where it is."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended. `output` is the agent's, as JSON."""

    run_id: RunId
    state: RunState
    output: Any
    reason: str | None


class Stage:
    """Runs of some agents, on a database and with a worker of this test's own.

    A worker is started by the first call that needs one, and works from then on until it crashes, `later`, a call on
    another stage that needs one (there is one engine in a process), or the test's end. `run` is left out where it is
    the one that was started last. A call that waits gives up after `patience_s` seconds and raises RehearsalFailed,
    which is an AssertionError. From a coroutine, call by `asyncio.to_thread`.
    """

    def __init__(self, theatre: Theatre, agents: Sequence[DurableAgent[Any]], settings: Settings) -> None:
        self.patience_s = PATIENCE_S
        self._theatre = theatre
        self._director = theatre.director
        self._agents = agents
        self._settings = settings
        self._stack = AsyncExitStack()
        self._actor: Actor | None = None
        self._last: RunId | None = None
        self._url = self._director.do(theatre.database(agents, self._stack))
        self._database = Database(self._url)
        self._surefoot = self._director.do(self._open())

    async def _open(self) -> Surefoot:
        surefoot = Surefoot(self._url, self._agents, settings=self._settings)
        self._stack.push_async_callback(surefoot.close)
        self._stack.push_async_callback(self._database.close)
        return surefoot

    @property
    def database_url(self) -> str:
        """Of this test's database, for what looks into it by itself."""
        return self._url

    # What a caller and a person do.

    def start(self, input: object, *, agent: str | None = None, key: str | None = None) -> RunId:
        """Start a run; its id. `agent`: its name, unless it is the first or only one. Raises as `Surefoot.start`."""
        name = agent or self._agents[0].name
        self._last = self._director.do(self._surefoot.start(name, input, key=key))
        return self._last

    def approve(self, run: RunId | None = None, *, by: str, role: str | None = None, tool: str | None = None) -> None:
        """Approve what the run asks for now (of `tool`). Raises RehearsalFailed (nothing), Forbidden, Conflict."""
        self._director.do(self._decide(self._run(run), "approve", by, role, tool, None))

    def reject(
        self,
        run: RunId | None = None,
        *,
        by: str,
        role: str | None = None,
        tool: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Reject what the run asks for now (of `tool`). Raises as `approve`."""
        self._director.do(self._decide(self._run(run), "reject", by, role, tool, reason))

    async def _decide(
        self, run: RunId, decision: Decision, by: str, role: str | None, tool: str | None, reason: str | None
    ) -> None:
        asked = [
            row
            for row in await self._surefoot.pending_approvals()
            if row["run_id"] == run and tool in (None, row["tool"])
        ]
        if not asked:
            raise RehearsalFailed(f"Nothing to {decision}: {_shown(await self._look(run))}.")
        await self._surefoot.set_principal(by, roles=[Role.APPROVER, *([role] if role else [])])
        who = await self._surefoot.acting_as(by)
        for row in asked:
            await who.decide(row["approval_id"], decision, reason=reason)

    def cancel(self, run: RunId | None = None, *, by: str = "a test") -> None:
        """Cancel the run; one that runs is ended by its worker. Raises Conflict when it is over."""
        self._director.do(self._operator(by).cancel(self._run(run)))

    def settle(
        self,
        outcome: Outcome,
        run: RunId | None = None,
        *,
        by: str,
        result: JsonValue = None,
        reason: str | None = None,
        tool: str | None = None,
    ) -> None:
        """Work until only a person can say what became of an effect (of `tool`), and say it. Raises as `finish`, and
        Conflict: "absent" is taken only after the attempt's own deadline, so call `later` first.
        """
        self._director.do(self._settle(self._run(run), outcome, by, result, reason, tool))

    async def _settle(
        self, run: RunId, outcome: Outcome, by: str, result: JsonValue, reason: str | None, tool: str | None
    ) -> None:
        await self._work("the desk", run, lambda look: tool in look["unknown"] or (tool is None and look["unknown"]))
        for row in (await self._surefoot.desk()).unknown:
            if row["run_id"] == run and tool in (None, row["tool"]):
                await self._operator(by).settle(row["action_id"], outcome, result=result, reason=reason)

    def _operator(self, by: str) -> Acting:
        return self._surefoot.acting_for(Principal(DEFAULT_TENANT, by, frozenset({Role.OPERATOR}), authenticated=False))

    # What happens to the worker.

    def crash_at(self, point: str, *, passage: int = 1) -> None:
        """Work until the worker passes this failpoint for the `passage`-th time from now on; there it dies.

        Raises RehearsalFailed when that does not happen.
        """
        if "*" in point or ":" in point or passage < 1:
            raise ValueError(f"{point!r}, {passage}: name one point, such as 'effect.after_send', and count from 1")
        self._director.do(self._crash_at(point, passage))

    async def _crash_at(self, point: str, passage: int) -> None:
        where = f"passage {passage} of {point}"
        with armed(point, passage):
            await self._work(where, self._last, lambda _: struck(), arrives=True)
        await self._die()

    def crash(self) -> None:
        """The worker dies now, wherever it is; nothing if there is none."""
        self._director.do(self._die())

    async def _die(self) -> None:
        actor, self._actor = self._actor, None
        if actor is None:
            return
        await actor.die()
        await self._note_death(actor)

    async def _note_death(self, actor: Actor) -> None:
        if actor.worker_id is not None:
            async with self._database.all_tenants("rehearsal.die") as session:
                await record.process_is_gone(session, actor.worker_id)

    def until(self, state: str, run: RunId | None = None) -> None:
        """Work until the run is in this state. Raises RehearsalFailed when it ends in another one."""
        wanted, run = RunState(state), self._run(run)
        self._director.do(self._work(f"state {wanted}", run, lambda look: look["state"] == wanted))

    def finish(self, run: RunId | None = None) -> Finished:
        """Work until the run has ended and nothing of it is left to do. Raises RehearsalFailed when it cannot end."""
        run = self._run(run)
        look = self._director.do(self._work("its end", run, _is_over))
        return Finished(run, RunState(look["state"]), look["output"], look["reason"])

    # Time.

    def later(self, by: timedelta) -> None:
        """Let this much time pass while no worker runs: one that runs is ended first, as by a deploy.

        No clock is moved. What is due in the database is moved back instead: the expiry of approvals (also of those
        that were given and not used), when deliveries are tried again and their claims lapse, the deadlines of attempts
        on their way, and those of runs. What the agent's own code or another system takes for the time stays as it is;
        so do times that were noted, such as when an event happened.
        """
        self._director.do(self._later(by))

    async def _later(self, by: timedelta) -> None:
        await self._stop()
        async with self._database.all_tenants("rehearsal.later") as session:
            await record.let_pass(session, by)

    # Looking.

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """What a read-only statement with `:name` parameters finds, as the agent's own tenant."""
        found = self._director.do(self._surefoot.database.query(self._surefoot.tenant, sql, **parameters))
        return [dict(row) for row in found]

    def timeline(self, run: RunId | None = None) -> list[dict[str, Any]]:
        """The rows of `surefoot.run_timeline`, in order: what happened, on which worker, and how."""
        return [dict(row) for row in self._director.do(self._surefoot.timeline(self._run(run)))]

    def _run(self, run: RunId | None) -> RunId:
        found = run or self._last
        if found is None:
            raise RehearsalFailed("Nothing was started: call `stage.start(...)` first.")
        return found

    async def _look(self, run: RunId) -> Look:
        async with self._surefoot.database.transaction("rehearsal.look", self._surefoot.tenant) as session:
            return await record.look(session, run)

    # Working.

    async def _work(self, what: str, run: RunId | None, done: Callable[[Look], bool], *, arrives: bool = False) -> Look:
        """Have a worker at work until `done`. `arrives`: any worker may get there, also while no run has work."""
        began = quiet_since = time.monotonic()
        mark: object = None
        await self._have_a_worker()
        while True:
            look: Look = {} if run is None else await self._look(run)
            if done(look):
                return look
            self._check_worker(what)
            now = time.monotonic()
            if (seen := (look.get("event_seq"), look.get("deliveries"), look.get("workflows"))) != mark:
                quiet_since, mark = now, seen
            stopped = bool(look) and (_is_over(look) or _asks_only(look, self.patience_s) or _on_the_desk(look))
            if now - began > self.patience_s or (stopped and now - quiet_since > (_IDLE_S if arrives else 0.2)):
                where = "no run was started" if not look else _shown(look)
                raise RehearsalFailed(f"It never came to {what} within {now - began:.1f} s: {where}.")
            await asyncio.sleep(_LOOK_S)

    async def _have_a_worker(self) -> None:
        if self._actor is None:
            await self._theatre.enter(self._stop)
            self._actor = Actor(self._url, self._agents, self._settings)
            await self._actor.begin()

    def _check_worker(self, what: str) -> None:
        assert self._actor is not None
        if self._actor.failed is not None:
            raise RehearsalFailed(f"The worker ended on the way to {what}: see above.") from self._actor.failed
        if self._actor.ended_itself is not None:
            raise RehearsalFailed(f"The worker ended itself on the way to {what}: {self._actor.ended_itself}.")

    async def _stop(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and not await actor.stop():
            await self._note_death(actor)

    def close(self) -> None:
        """End the worker and drop the database."""
        self._director.do(self._close())

    async def _close(self) -> None:
        try:
            await self._stop()
        finally:
            await self._stack.aclose()


def _is_over(look: Look) -> bool:
    settled = look["ended"] and not look["deliveries"] and not look["workflows"]
    return bool(settled or look["state"] == RunState.HELD)


def _asks_only(look: Look, patience_s: float) -> bool:
    """Whether only a person can carry it on: no worker, and no approval that expires while the call waits."""
    waits = look["state"] == RunState.WAITING and look["asks"] and look["asks_for_s"] > patience_s
    return bool(waits and not look["deliveries"] and not look["workflows"])


def _on_the_desk(look: Look) -> bool:
    """Whether all that is left waits for a person to say what became of it."""
    return bool(look["unknown"]) and not look["deliveries"] and not look["workflows"]


def _shown(look: Look) -> str:
    asks = f", and asks for the approval of {', '.join(look['asks'])}" if look["asks"] else ""
    asks += f", and waits for a person to say what became of {', '.join(look['unknown'])}" if look["unknown"] else ""
    why = f" ({look['reason']})" if look["reason"] else ""
    left = f"{look['deliveries']} deliveries and {look['workflows']} workflows of it are open"
    return f"run {look['run_id']} is {look['state']}{why}{asks}; {left}"


def stage(theatre: Theatre, *given: DurableAgent[Any], agents: str | None = None, settings: Settings | None) -> Stage:
    """A stage for agents given as values, or as `module:ATTRIBUTE,...`."""
    # What is installed as an entry point is loaded as well, and comes first there; a test means the one it names.
    loaded = [*given, *(reversed(load_agents(agents)) if agents is not None else ())]
    if not loaded:
        raise ValueError("Give an agent: rehearsal(my_agent), or rehearsal(agents='my_package:my_agent').")
    return Stage(theatre, loaded, settings or PACE)
