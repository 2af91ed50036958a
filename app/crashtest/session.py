"""A session: an undisturbed run to compare with, the cases of a plan some at a time, and the negative controls."""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from app.crashtest import ground as grounds
from app.crashtest.case import play
from app.crashtest.controls import CONTROLS, Control
from app.crashtest.faults import CANCELLED, DECIDED, KINDS, PERSONS, SETTLED, STARTED, Faults, Kind, show
from app.crashtest.fork import Forks
from app.crashtest.ground import Ground, Pace
from app.crashtest.outcome import Case, Outcome
from app.crashtest.place import Server
from app.crashtest.plans import LOOPS, Catalogue, Plan, beyond, plan
from app.crashtest.report import ControlResult, Report
from app.crashtest.subject import Subject
from app.loading import load_agents
from transactions import InvalidInput, SurefootError
from transactions.lease import EXIT_LEASE_LOST

# A few cases more than were asked for are drawn, because not every fault strikes an unfinished run.
_SPARE = 0.5
_SHRUNK_MAX = 3
_MISSED_MAX = 4
# What a person passes who says what became of an effect.
_SETTLES = (f"{SETTLED}before_commit", f"{SETTLED}after_commit")

Opens = Callable[[Forks, Path], AbstractAsyncContextManager[Subject]]


class CrashTestFailed(SurefootError):
    """The matrix cannot be played, because the agent does not even get through undisturbed."""


@dataclass(frozen=True, slots=True)
class Options:
    """`workers`: cases at the same time. `replay`: the cases to play, in place of a plan. `say`: told of every case.

    kinds: None stands for all that can be done to this server.
    """

    cases: int = 100
    seed: int = 0
    workers: int = 4
    kinds: Sequence[Kind] | None = None
    plan: Plan = "mixed"
    replay: Sequence[Faults] = ()
    controls: bool = True
    say: Callable[[str], None] = field(default=lambda _: None)

    def for_server(self, server: Server) -> "Options":
        """With the kinds said. Raises InvalidInput when one cannot be done to this server."""
        able = [kind for kind in KINDS if server.restart is not None or kind != "db-restart"]
        asked = {fault.kind for faults in self.replay for fault in faults} | set(self.kinds or ())
        if unable := asked.difference(able):
            raise InvalidInput(f"{', '.join(unable)} ends the server, and this one is not ours: unset DATABASE_URL.")
        # A read that is refused for longer than it is tried ends a run rightly: only where somebody asks for it.
        usual = [kind for kind in able if kind != "refused"]
        return replace(self, kinds=usual if self.kinds is None else self.kinds)


def given(subject: Subject) -> Opens:
    """For a subject whose world is already there."""

    @asynccontextmanager
    async def opens(_: Forks, __: Path) -> AsyncGenerator[Subject]:
        yield subject

    return opens


async def crashtest(server: Server, folder: Path, opens: Opens, *, agents: str | None, options: Options) -> Report:
    """Play a session on databases of this server, which may be made and dropped; logs go to `folder`.

    Raises CrashTestFailed, ForkFailed, InvalidInput (an agent that does not exist).
    """
    began = time.monotonic()
    options = options.for_server(server)
    loaded = load_agents(agents)
    jitter_s = await grounds.jitter_s()
    async with AsyncExitStack() as stack:
        name = f"surefoot_crash_{os.getpid()}_{int(time.time()) % 100_000}"
        forks = await stack.enter_async_context(Forks(grounds.environment(agents), folder / "forks.log"))
        subject = await stack.enter_async_context(opens(forks, folder))
        if subject.agent not in {agent.name for agent in loaded}:
            known = ", ".join(sorted(agent.name for agent in loaded))
            raise InvalidInput(f"No agent named {subject.agent!r}: choose one of: {known}.")
        template = await stack.enter_async_context(grounds.template(server.url, name, loaded))
        unhurried = grounds.unhurried(jitter_s)
        ground = Ground(folder, server.url, template, forks, subject, loaded, unhurried, server.restart)
        undisturbed = await _undisturbed(ground)
        attempts_s = [
            spec.limits.attempt_s for agent in loaded if agent.name == subject.agent for spec in agent.specs.values()
        ]
        pace = Pace.measured(jitter_s, undisturbed.seconds, at_once=options.workers).patient(max(attempts_s, default=0))
        session = _Session(replace(ground, pace=pace), options, undisturbed)
        outcomes = await session.cases()
        controls = await session.controls() if options.controls and not options.replay else []
    exhaustive = options.plan == "exhaustive"
    required = session.required if exhaustive else frozenset[tuple[str, str]]()
    return Report(
        agent=subject.agent,
        seed=options.seed,
        wanted=len(options.replay) or (0 if exhaustive else options.cases),
        outcomes=outcomes,
        controls=controls,
        seconds=time.monotonic() - began,
        lease_s=pace.lease_s,
        jitter_s=pace.jitter_s,
        catalogue=frozenset(undisturbed.trace),
        required=required,
    )


async def _undisturbed(ground: Ground) -> Outcome:
    """Raises CrashTestFailed when it does not come to an end by itself."""
    outcome = await play(ground, Case("undisturbed", ()), None)
    if outcome.end != "ended" or outcome.picture.state == "failed":
        raise CrashTestFailed(
            f"Undisturbed, the run of {ground.subject.agent} ends as {outcome.picture.state}: "
            f"correct that first (its worker's log: {ground.folder / 'undisturbed'})."
        )
    if not outcome.picture.world and not outcome.picture.rows:
        raise CrashTestFailed(
            f"Undisturbed, the run of {ground.subject.agent} leaves nothing in the world: nothing could be lost or "
            "doubled. Give a `count` that finds its effects, or `rows`."
        )
    return outcome


@dataclass(slots=True)
class _Session:
    """`seen`: every point that was passed by a worker that nobody struck any more."""

    ground: Ground
    options: Options
    undisturbed: Outcome
    seen: set[str] = field(default_factory=set[str])
    _numbers: "count[int]" = field(default_factory=count)

    @property
    def required(self) -> frozenset[tuple[str, str]]:
        """What an exhaustive plan has to strike: each kind of fault at each point that a run surely passes, a kill at
        what was found on the way, and people where somebody decides.
        """
        kinds = self.options.kinds or ()
        drawn = [fault for kind in kinds for faults in self._catalogue.singles(kind) for fault in faults]
        sure = {(fault.kind, fault.point) for fault in drawn if not fault.point.startswith((*LOOPS, *PERSONS))}
        people = {("kill", fault.point) for fault in drawn if fault.of_person and self.ground.subject.role is not None}
        return frozenset(sure | people | {("kill", point) for point in self.seen if "kill" in kinds})

    @property
    def _catalogue(self) -> Catalogue:
        decides = CANCELLED if self.ground.subject.person == "cancel" else DECIDED
        run = self.undisturbed
        return Catalogue(tuple(run.trace), run.seconds, run.connections, (STARTED, decides))

    async def cases(self) -> list[Outcome]:
        drawn = list(self.options.replay) or self._drawn()
        self.seen.update(self._catalogue.counts())
        outcomes: list[Outcome] = []
        # A restart of the database strikes all that use it.
        await self._work(deque(faults for faults in drawn if _restarts(faults)), outcomes, at_once=1)
        others = deque(faults for faults in drawn if not _restarts(faults))
        await self._work(others, outcomes, at_once=self.options.workers)
        for outcome in [outcome for outcome in outcomes if outcome.failed][:_SHRUNK_MAX]:
            outcome.shrunk = await self._shrink(outcome)
        return outcomes

    def _drawn(self) -> list[Faults]:
        kinds, wanted = self.options.kinds, self.options.cases
        assert kinds is not None
        spare = int(wanted * _SPARE) + 10
        kind, seed = self.options.plan, self.options.seed
        return plan(self._catalogue, kind=kind, cases=wanted + spare if wanted else 0, seed=seed, kinds=kinds)

    async def _work(self, todo: deque[Faults], outcomes: list[Outcome], *, at_once: int) -> None:
        """Play until as many cases count as were asked for, or none is left; more are found on the way."""
        exhaustive = self.options.plan == "exhaustive" and not self.options.replay
        enough = None if exhaustive or self.options.replay else self.options.cases
        missed: Counter[Faults] = Counter()

        async def work() -> None:
            while todo and (enough is None or sum(outcome.counts for outcome in outcomes) < enough):
                outcome = await self._play(todo.popleft())
                outcomes.append(outcome)
                if exhaustive and not outcome.counts and missed[outcome.case.faults] < _MISSED_MAX:
                    missed[outcome.case.faults] += 1  # the run was over a moment before: it is tried again
                    todo.append(outcome.case.faults)
                persons = _SETTLES if outcome.verdict.word == "on the desk" else ()
                new = {*outcome.trace, *persons}.difference(self.seen)
                self.seen.update(new)
                if not _restarts(outcome.case.faults) and not self.options.replay:
                    todo.extendleft(beyond(point, outcome.case.faults) for point in sorted(new))

        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, min(at_once, len(todo)))):
                group.create_task(work())

    async def _shrink(self, outcome: Outcome) -> Faults:
        """Leave out one fault after the other, as long as something of the same kind is found."""
        faults, kinds, n = outcome.case.faults, {finding.kind for finding in outcome.findings}, 0
        while n < len(faults) and len(faults) > 1:
            fewer = faults[:n] + faults[n + 1 :]
            again = await self._play(fewer)
            if kinds.isdisjoint(finding.kind for finding in again.findings):
                n += 1
            else:
                faults = fewer
        return faults

    async def _play(self, faults: Faults, *, broken: tuple[str, ...] = ()) -> Outcome:
        number = next(self._numbers)
        outcome = await play(self.ground, Case(f"case_{number}", faults, broken), self.undisturbed.picture)
        verdict = ", ".join(sorted({finding.kind for finding in outcome.findings})) or (
            outcome.verdict.word if outcome.counts else "not struck"
        )
        about = "control " if broken else ""
        self.options.say(f"{about}{number} {outcome.seed}: {verdict} in {outcome.seconds:.1f} s")
        return outcome

    async def controls(self) -> list[ControlResult]:
        gate = asyncio.Semaphore(self.options.workers)

        async def one(control: Control) -> ControlResult:
            async with gate:
                return await self._control(control)

        return list(await asyncio.gather(*(one(control) for control in CONTROLS)))

    async def _control(self, control: Control) -> ControlResult:
        """The control's cases until one has the finding, then that case with the protection in place."""
        result = ControlResult(control.name, control.finding, "no such fault in this agent", (), ())
        for faults in control.faults(self._catalogue):
            broken = await self._play(faults, broken=(*control.besides, control.broken))
            kinds = tuple(sorted({finding.kind for finding in broken.findings}))
            if any(code > 0 and code != EXIT_LEASE_LOST for code in broken.exits):
                kinds = ()  # its workers could not work like this, which says nothing of the protection
            result = replace(result, seed=show(faults), found=kinds)
            if control.finding in kinds:
                restored = await self._play(faults, broken=control.besides)
                return replace(result, restored=tuple(sorted({finding.kind for finding in restored.findings})))
        return result


def _restarts(faults: Faults) -> bool:
    return any(fault.kind == "db-restart" for fault in faults)
