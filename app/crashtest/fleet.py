"""A fleet under fire: `python -m app.crashtest.fleet --seconds 120 --runs 200 --seed 1 --json FILE`. Linux, as root.

Three workers, each on a host of its own (network, processes, name), one Postgres and two services that they reach over
the network. Every second the worker of a random host is killed, frozen until its lease is over, or cut off from
everything until it has ended; it is started anew when it has. Meanwhile runs of nine turns and two effects start. It
ends with 0 when every run ended right, enough blows struck a worker at a run, runs went on elsewhere soon enough, and
nothing is left behind.
"""

import argparse
import asyncio
import json
import logging
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.crashtest import judge as judging
from app.crashtest.fleet_crew import BLOWS, Crew, Query
from app.crashtest.fleet_ground import NAMES, FleetGround, fleet_ground
from app.crashtest.fleet_times import EVENTS, percentile, recoveries
from app.crashtest.judge import Picture, Struck, Verdict
from transactions import SurefootError, until_committed

_LOOK_S = 0.2
_OVER_S = 2.0  # that recovery may take beyond the lease
_RESIDUALS_MAX_SHARE = 0.01  # of the runs: so short is the window, and what is more has another cause
_OF_THE_STORM = 0.8  # in which part of it runs are started
_NOTES = "select text, count(*) as times from rounds.notes where run_id = :run_id group by text"
_OPEN = """
select (select count(*) from surefoot.runs where ended_at is null) as runs,
       (select count(*) from surefoot.outbox_deliveries where state in ('parked', 'pending', 'claimed')) as deliveries,
       (select count(*) from dbos.workflow_status where status in ('PENDING', 'ENQUEUED', 'DELAYED')) as workflows,
       (select sum(event_seq) from surefoot.runs) as events"""
_LEFT = "select why, workflow_id from surefoot.stranded"
_PENDING = "select workflow_uuid from dbos.workflow_status where status = 'PENDING'"
AGAIN = "struck again, a blow"  # runs that were struck more than once before they went on: seconds for each blow
# The judge knows the one window that is left by this name. Whether a worker was frozen in it cannot be seen from
# outside; what it had claimed by then can.
_WINDOW = "effect.before_send"
_WORDS: Mapping[str, str] = MappingProxyType({"kill": "kill", "freeze": "freeze", "cut": "partition"})


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` of fire, a blow each; `runs` that are started meanwhile. `hits_min`: blows that struck a run.

    over_s: how much longer than a lease it may take at p99 until a run goes on elsewhere, on a machine that is free.
    """

    seconds: int = 120
    runs: int = 200
    seed: int = 1
    hits_min: int | None = None
    over_s: float = _OVER_S

    @property
    def hits_wanted(self) -> int:
        return self.seconds // 2 if self.hits_min is None else self.hits_min


@dataclass(slots=True)
class Report:
    """What was measured. `findings`: what is wrong, in words; none is a success."""

    runs: int
    seconds: float
    lease_s: float
    blows: dict[str, int]
    hits: int
    runs_struck: int
    verdicts: dict[str, int] = field(default_factory=dict[str, int])
    exits: dict[str, int] = field(default_factory=dict[str, int])
    recovered: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    findings: list[str] = field(default_factory=list[str])


async def play(options: Options) -> Report:
    """Raises SurefootError when there can be no fleet here."""
    async with fleet_ground() as ground:
        surefoot, tenant = ground.surefoot, ground.surefoot.tenant

        async def query(sql: str, **parameters: object) -> Any:
            return await until_committed(lambda: surefoot.database.query(tenant, sql, **parameters), lambda: None)

        fleet = _Fleet(ground, options, Crew(ground, query), query)
        async with asyncio.TaskGroup() as group:  # whoever of both fails ends the other
            return await fleet.play(group.create_task(fleet.crew.keep()))


@dataclass(slots=True)
class _Fleet:
    ground: FleetGround
    options: Options
    crew: Crew
    query: Query
    run_ids: list[str] = field(default_factory=list[str])
    findings: list[str] = field(default_factory=list[str])

    async def play(self, keeping: asyncio.Task[None]) -> Report:
        first = await self._start_run(0)
        await self._until_quiet()
        undisturbed = await self._picture(first)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(self._storm(), self._start_runs())
        await self._until_quiet()
        seconds = asyncio.get_running_loop().time() - began
        verdicts = [await self._verdict(run_id, undisturbed) for run_id in self.run_ids[1:]]
        await self._leave(keeping)
        return await self._report(seconds, verdicts)

    async def _storm(self) -> None:
        """A blow a second, at a random host; while two or more workers are up, at one of theirs."""
        draw = random.Random(self.options.seed)  # noqa: S311  reproducible, not secret
        for _ in range(self.options.seconds):
            up = self.crew.up
            name = draw.choice(sorted(up) if len(up) > 1 else NAMES)
            await self.crew.strike(name, draw.choice(BLOWS))
            await asyncio.sleep(1.0)

    async def _start_runs(self) -> None:
        pause_s = self.options.seconds * _OF_THE_STORM / self.options.runs
        for number in range(1, self.options.runs + 1):
            await self._start_run(number)
            await asyncio.sleep(pause_s)

    async def _start_run(self, number: int) -> str:
        run_id = await self.ground.surefoot.start("rounds", {"number": number}, key=f"round {number}")
        self.run_ids.append(run_id)
        return run_id

    async def _until_quiet(self) -> None:
        """Until all runs have ended and nothing is left of them, or nothing goes on any more."""
        clock = asyncio.get_running_loop().time
        heard, seen = clock(), None
        while True:
            left = dict((await self.query(_OPEN))[0])
            if not (left["runs"] or left["deliveries"] or left["workflows"]):
                return
            if left != seen:
                heard, seen = clock(), left
            if clock() - heard > self.ground.pace.stuck_s:
                self.findings.append(f"nothing goes on any more: {left}")
                return
            await asyncio.sleep(_LOOK_S)

    async def _picture(self, run_id: str) -> Picture:
        world = await asyncio.to_thread(self.ground.count, run_id)
        return await judging.look(self.query, run_id, world, [_NOTES])

    async def _verdict(self, run_id: str, undisturbed: Picture) -> Verdict:
        picture = await self._picture(run_id)
        strikes = [
            Struck(_WORDS[hit.blow], _WINDOW, seq, hit.worker_id, hit.until)
            for hit in self.crew.hits
            for run, seq in hit.runs
            if run == run_id
        ]
        end = "ended" if picture.state in ("completed", "failed", "cancelled") else "stuck"
        verdict = await judging.judge(self.query, run_id, picture, undisturbed, end=end, strikes=strikes)
        if verdict.word == "failed":
            self.findings += [f"run {run_id}: {finding}" for finding in verdict.findings]
        return verdict

    async def _leave(self, keeping: asyncio.Task[None]) -> None:
        """The workers are asked to leave: all of them end well, and leave nothing behind."""
        before = len(self.crew.exits)
        await self.crew.leave()
        await keeping
        codes = [code for _, code in self.crew.exits[before:]]
        if codes != [0] * len(NAMES):
            self.findings.append(f"asked to leave, the workers ended with {codes}")
        left = [*await self.query(_LEFT), *await self.query(_PENDING)]
        self.findings += [f"left behind: {dict(row)}" for row in left]

    async def _report(self, seconds: float, verdicts: Sequence[Verdict]) -> Report:
        hits = [hit for hit in self.crew.hits if hit.runs]
        found = list(recoveries(hits, await self.query(EVENTS)))
        lease_s, wanted = self.ground.pace.lease_s, self.options.hits_wanted
        exits = Counter(f"{blow or 'asked to leave'}: {code}" for blow, code in self.crew.exits)
        report = Report(
            runs=len(verdicts),
            seconds=round(seconds, 1),
            lease_s=round(lease_s, 2),
            blows=dict(Counter(hit.blow for hit in self.crew.hits)),
            hits=len(hits),
            runs_struck=sum(len(hit.runs) for hit in hits),
            verdicts=dict(Counter(verdict.word for verdict in verdicts)),
            exits=dict(exits),
            findings=[*self.findings, *self.crew.wrong],
        )
        once = [one for one in found if one.blows == 1]
        report.recovered["all"] = _spread([one.seconds for one in once])
        for blow in sorted(set(BLOWS)):
            report.recovered[blow] = _spread([one.seconds for one in once if one.blow == blow])
        report.recovered[AGAIN] = _spread([one.seconds / one.blows for one in found if one.blows > 1])
        report.findings += shortcomings(report, wanted=wanted, over_s=self.options.over_s)
        return report


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "times": len(seconds),
        "p50": round(percentile(seconds, 0.5), 2),
        "p99": round(percentile(seconds, 0.99), 2),
        "max": round(max(seconds, default=0.0), 2),
    }


def shortcomings(report: Report, *, wanted: int, over_s: float = _OVER_S) -> Iterator[str]:
    """What was measured too seldom to show anything, took too long, or happened too often, in words."""
    if report.hits < wanted:
        yield f"only {report.hits} blows struck a worker at a run, and {wanted} were wanted"
    if (times := report.recovered["all"]["times"]) < wanted:
        yield f"only {times} times a run was seen to go on elsewhere, and {wanted} were wanted"
    for which in ("all", AGAIN):
        if (p99 := report.recovered[which]["p99"]) > report.lease_s + over_s:
            yield f"{which}: runs went on elsewhere after {p99:.2f} s at p99, and the lease is {report.lease_s:.2f} s"
    residuals, most = report.verdicts.get("residual", 0), math.ceil(_RESIDUALS_MAX_SHARE * report.runs)
    if residuals > most:
        yield f"{residuals} runs have a residual duplicate, and {most} are as many as the window explains"


def text(report: Report) -> str:
    """For people."""
    lines = [
        f"{report.runs} runs under fire for {report.seconds:.0f} s in all, with a lease of {report.lease_s:g} s",
        f"blows that struck a worker: {report.blows}; at {report.runs_struck} running runs: {report.hits}",
        f"verdicts: {report.verdicts}; how workers ended: {report.exits}",
        *(
            f"{blow}: {of['times']} times to elsewhere in p50 {of['p50']} s, p99 {of['p99']} s, max {of['max']} s"
            for blow, of in report.recovered.items()
        ),
        *(f"FINDING {finding}" for finding in report.findings),
        "failed" if report.findings else "passed",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m app.crashtest.fleet")
    parser.add_argument("--seconds", type=int, default=Options.seconds, help="of fire, a blow each")
    parser.add_argument("--runs", type=int, default=Options.runs, help="that are started meanwhile")
    parser.add_argument("--seed", type=int, default=Options.seed, help="which blows are drawn")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    given = parser.parse_args()
    if given.seconds < 1 or given.runs < 1:
        parser.error("give at least one second and one run")
    logging.basicConfig(level=logging.ERROR)
    try:
        report = asyncio.run(play(Options(given.seconds, given.runs, given.seed)))
    except SurefootError as error:
        sys.stderr.write(f"fleet: {error}\n")
        return 1
    if given.json is not None:
        given.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    sys.stdout.write(text(report) + "\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
