"""A session: an undisturbed run to compare with, the cases of a plan some at a time, and the negative controls."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.crashtest import ground as grounds
from app.crashtest.case import play
from app.crashtest.controls import CONTROLS, Control
from app.crashtest.faults import KINDS, Catalogue, Faults, Kind, plan, show
from app.crashtest.fork import Forks
from app.crashtest.ground import Ground, Pace
from app.crashtest.outcome import Case, Outcome
from app.crashtest.report import ControlResult, Report
from app.crashtest.subject import Subject
from app.loading import load_agents
from transactions import InvalidInput, SurefootError

# A few cases more than were asked for are drawn, because not every fault strikes an unfinished run.
_SPARE = 0.5
# Points that only a worker passes that takes over from another.
_RECOVERY = ("watchdog.before_recover", "watchdog.after_recover", "effect.before_verify", "effect.after_verify")

_SHRUNK_MAX = 3

Opens = Callable[[Forks, Path], AbstractAsyncContextManager[Subject]]


class CrashTestFailed(SurefootError):
    """The matrix cannot be played, because the agent does not even get through undisturbed."""


@dataclass(frozen=True, slots=True)
class Options:
    """`workers`: cases at the same time. `replay`: the faults of the one case to play. `say`: told of every case."""

    cases: int = 100
    seed: int = 0
    workers: int = 4
    kinds: tuple[Kind, ...] = KINDS
    replay: Faults | None = None
    controls: bool = True
    say: Callable[[str], None] = field(default=lambda _: None)


def given(subject: Subject) -> Opens:
    """For a subject whose world is already there."""

    @asynccontextmanager
    async def opens(_: Forks, __: Path) -> AsyncGenerator[Subject]:
        yield subject

    return opens


async def crashtest(server_url: str, folder: Path, opens: Opens, *, agents: str | None, options: Options) -> Report:
    """Play a session on databases of this server, which may be made and dropped; logs go to `folder`.

    Raises CrashTestFailed, ForkFailed, InvalidInput (an agent that does not exist).
    """
    began = time.monotonic()
    loaded = load_agents(agents)
    jitter_s = await grounds.jitter_s()
    async with AsyncExitStack() as stack:
        name = f"surefoot_crash_{os.getpid()}_{int(time.time()) % 100_000}"
        forks = await stack.enter_async_context(Forks(grounds.environment(agents), folder / "forks.log"))
        subject = await stack.enter_async_context(opens(forks, folder))
        if subject.agent not in {agent.name for agent in loaded}:
            known = ", ".join(sorted(agent.name for agent in loaded))
            raise InvalidInput(f"No agent named {subject.agent!r}: choose one of: {known}.")
        template = await stack.enter_async_context(grounds.template(server_url, name, loaded))
        ground = Ground(folder, server_url, template, forks, subject, loaded, grounds.unhurried(jitter_s))
        undisturbed = await _undisturbed(ground)
        pace = Pace.measured(jitter_s, undisturbed.seconds)
        session = _Session(replace(ground, pace=pace), options, undisturbed)
        outcomes = await session.cases()
        controls = await session.controls() if options.controls and options.replay is None else []
    wanted = 0 if options.replay is not None else options.cases
    seconds = time.monotonic() - began
    return Report(
        subject.agent,
        options.seed,
        wanted,
        outcomes,
        controls,
        seconds,
        pace.lease_s,
        pace.jitter_s,
        frozenset(undisturbed.trace),
    )


async def _undisturbed(ground: Ground) -> Outcome:
    """Raises CrashTestFailed when it does not come to an end by itself."""
    outcome = await play(ground, Case("undisturbed", ()), None)
    if not outcome.ended or outcome.picture.state != "completed":
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
    ground: Ground
    options: Options
    undisturbed: Outcome
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def _catalogue(self) -> Catalogue:
        return Catalogue(tuple(self.undisturbed.trace), self.undisturbed.seconds)

    async def cases(self) -> list[Outcome]:
        if self.options.replay is not None:
            return [await self._play(self.options.replay)]
        wanted = self.options.cases
        recovery = {*self._catalogue.counts(), *_RECOVERY}
        drawn = plan(
            self._catalogue,
            recovery,
            cases=wanted + int(wanted * _SPARE) + 10,
            seed=self.options.seed,
            kinds=self.options.kinds,
        )
        todo = iter(drawn)
        outcomes: list[Outcome] = []

        async def work() -> None:
            while sum(outcome.counts for outcome in outcomes) < wanted:
                faults = next(todo, None)
                if faults is None:
                    return
                outcomes.append(await self._play(faults))

        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, min(self.options.workers, wanted))):
                group.create_task(work())
        for outcome in [outcome for outcome in outcomes if outcome.findings][:_SHRUNK_MAX]:
            outcome.shrunk = await self._shrink(outcome)
        return outcomes

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

    async def _play(self, faults: Faults, *, broken: str | None = None) -> Outcome:
        number = next(self._numbers)
        outcome = await play(self.ground, Case(f"case_{number}", faults, broken), self.undisturbed.picture)
        verdict = ", ".join(sorted({finding.kind for finding in outcome.findings})) or (
            "recovered" if outcome.counts else "not struck"
        )
        about = "control " if broken is not None else ""
        self.options.say(f"{about}{number} {outcome.seed}: {verdict} in {outcome.seconds:.1f} s")
        return outcome

    async def controls(self) -> list[ControlResult]:
        gate = asyncio.Semaphore(self.options.workers)

        async def one(control: Control) -> ControlResult:
            async with gate:
                return await self._control(control)

        return list(await asyncio.gather(*(one(control) for control in CONTROLS)))

    async def _control(self, control: Control) -> ControlResult:
        """The control's cases until one has the finding, then that case with the product as it is."""
        result = ControlResult(control.name, control.finding, "no such fault in this agent", (), ())
        for faults in control.faults(self._catalogue):
            broken = await self._play(faults, broken=control.broken)
            kinds = tuple(sorted({finding.kind for finding in broken.findings}))
            result = replace(result, seed=show(faults), found=kinds)
            if control.finding in kinds:
                restored = await self._play(faults)
                return replace(result, restored=tuple(sorted({finding.kind for finding in restored.findings})))
        return result
