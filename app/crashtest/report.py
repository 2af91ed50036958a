"""What a session found, in numbers: for people, and as JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, get_args

from app.crashtest.faults import MOMENT, show
from app.crashtest.judge import Word
from app.crashtest.outcome import Outcome, Strike

FAILED_SHOWN_MAX = 20
TRACE_SHOWN = 12
WORDS = get_args(Word)


@dataclass(frozen=True, slots=True)
class ControlResult:
    """`found`: kinds of findings with the protection taken away; `restored`: findings with it in place again."""

    name: str
    expected: str
    seed: str
    found: tuple[str, ...]
    restored: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.expected in self.found and not self.restored

    def __str__(self) -> str:
        what = f"found {', '.join(self.found) or 'nothing'}, and {', '.join(self.restored) or 'nothing'} when restored"
        return f"{'failed as it must' if self.ok else 'DEFECT OF THE KIT'}: {self.name} ({self.seed}): {what}"


@dataclass(frozen=True, slots=True)
class Report:
    """`outcomes`: of all cases that were played; those whose faults struck an unfinished run count.

    `catalogue`: the failpoints that the undisturbed run passed. `required`: those that had to be struck.
    """

    agent: str
    seed: int
    wanted: int
    outcomes: Sequence[Outcome]
    controls: Sequence[ControlResult]
    seconds: float
    lease_s: float
    jitter_s: float
    catalogue: frozenset[str] = frozenset()
    required: frozenset[tuple[str, str]] = frozenset()

    @property
    def counted(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.counts]

    @property
    def failed(self) -> list[Outcome]:
        """Every case with a finding, also one that does not count."""
        return [outcome for outcome in self.outcomes if outcome.failed]

    @property
    def ok(self) -> bool:
        """As many cases as were asked for counted, none failed, every point was struck that had to be, and every
        control failed for its named reason.
        """
        enough = len(self.counted) >= self.wanted and not self.missed
        return not self.failed and enough and all(control.ok for control in self.controls)

    @property
    def missed(self) -> list[str]:
        """Kinds and points that had to be struck and were not, not even when the run was over."""
        struck = {(strike.fault.kind, strike.point) for outcome in self.outcomes for strike in outcome.strikes}
        return sorted(f"{kind} {point}" for kind, point in self.required - struck)

    @property
    def over(self) -> list[str]:
        """Kinds and points that had to be struck, and that a run passes only as its very last: it was over by then."""
        unfinished = {(strike.fault.kind, strike.point) for strike in self.strikes}
        return sorted({f"{kind} {point}" for kind, point in self.required - unfinished}.difference(self.missed))

    def verdicts(self) -> Counter[str]:
        """How many of the cases that count came to what."""
        return Counter(outcome.verdict.word for outcome in self.counted)

    @property
    def strikes(self) -> list[Strike]:
        return [strike for outcome in self.counted for strike in outcome.strikes if strike.unfinished]

    def findings(self) -> Counter[str]:
        """How many cases have a finding of each kind."""
        return Counter(kind for o in self.outcomes for kind in {finding.kind for finding in o.findings})

    def exits(self) -> Counter[int]:
        """How many workers ended without a kill, by their exit code: 75 is a lease that was lost."""
        return Counter(code for outcome in self.outcomes for code in outcome.exits)

    def recovery_s(self) -> tuple[float, float] | None:
        """Median and 99th percentile of the time from a strike to the next thing that happened for its run."""
        times = sorted(s.recovered_s for s in self.strikes if s.recovered_s is not None)
        return (median(times), times[min(len(times) - 1, int(len(times) * 0.99))]) if times else None

    def by_point(self) -> list[tuple[str, int, Mapping[str, int]]]:
        """`kind point`, strikes there, and what the cases with one there came to."""
        strikes: Counter[str] = Counter()
        came_to: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for outcome in self.counted:
            names = [_name(strike) for strike in outcome.strikes if strike.unfinished]
            strikes.update(names)
            for name in set(names):
                came_to[name][outcome.verdict.word] += 1
        return [(name, strikes[name], came_to[name]) for name in sorted(strikes)]

    def as_json(self) -> dict[str, Any]:
        recovery = self.recovery_s()
        return {
            "agent": self.agent,
            "seed": self.seed,
            "ok": self.ok,
            "cases_wanted": self.wanted,
            "cases": len(self.counted),
            "cases_that_struck_nothing": len(self.outcomes) - len(self.counted),
            "verdicts": dict(self.verdicts()),
            "failed": len(self.failed),
            "points_missed": self.missed,
            "points_struck_after_the_end": self.over,
            "findings": dict(self.findings()),
            "strikes": len(self.strikes),
            "processes_died": sum(outcome.deaths for outcome in self.outcomes),
            "processes_stopped": len([s for s in self.strikes if s.fault.kind == "stop"]),
            "workers_that_ended_by_themselves": {str(code): count for code, count in self.exits().items()},
            "steps_repeated": sum(outcome.repeated for outcome in self.outcomes),
            "recovery_s": None if recovery is None else {"median": recovery[0], "p99": recovery[1]},
            "seconds": self.seconds,
            "cases_a_minute": self.cases_a_minute,
            "lease_s": self.lease_s,
            "jitter_s": self.jitter_s,
            "by_point": [
                {"point": name, "strikes": strikes, "cases": dict(came_to)}
                for name, strikes, came_to in self.by_point()
            ],
            "failures": [
                {
                    "replay": o.seed,
                    "shrunk": None if o.shrunk is None else show(o.shrunk),
                    "run_id": o.run_id,
                    "findings": [str(f) for f in o.findings],
                }
                for o in self.failed
            ],
            "controls": [
                {
                    "name": c.name,
                    "ok": c.ok,
                    "replay": c.seed,
                    "expected": c.expected,
                    "found": [*c.found],
                    "restored": [*c.restored],
                }
                for c in self.controls
            ],
        }

    @property
    def cases_a_minute(self) -> float:
        return 60 * len(self.outcomes) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The table, then whatever went wrong, each with the words that play it again."""
        yield f"{'fault and point':<52} {'strikes':>8}" + "".join(f"{word:>{len(word) + 2}}" for word in WORDS)
        for name, strikes, came_to in self.by_point():
            yield f"{name:<52} {strikes:>8}" + "".join(f"{came_to.get(word, 0):>{len(word) + 2}}" for word in WORDS)
        if self.over:
            yield f"struck only when the run was over: {', '.join(self.over)}"
        if self.missed:
            yield f"NEVER STRUCK: {', '.join(self.missed)}"
        for control in self.controls:
            yield f"control {control}"
        for outcome in self.failed[:FAILED_SHOWN_MAX]:
            yield from told(outcome)
        words = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts().items())) or "none"
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(self.findings().items())) or "nothing wrong"
        yield ""
        yield f"{len(self.counted)} cases struck an unfinished run of {self.agent}: {words}; {found}"
        if struck_nothing := len(self.outcomes) - len(self.counted):
            yield f"{struck_nothing} more cases do not count: their faults struck no unfinished run"
        deaths, repeated = sum(o.deaths for o in self.outcomes), sum(o.repeated for o in self.outcomes)
        yield f"{deaths} processes died by SIGKILL; {repeated} steps that were in flight ran again"
        if exits := self.exits():
            by_code = ", ".join(f"{count} with {code}" for code, count in sorted(exits.items()))
            yield f"{sum(exits.values())} workers ended by themselves (75: the lease was lost): {by_code}"
        if (recovery := self.recovery_s()) is not None:
            yield f"time to recover: median {recovery[0]:.2f} s, p99 {recovery[1]:.2f} s (lease {self.lease_s:.1f} s)"
        yield f"{self.seconds:.0f} s, {self.cases_a_minute:.1f} cases a minute, jitter {1000 * self.jitter_s:.0f} ms"


def told(outcome: Outcome) -> Iterator[str]:
    """A case that failed: its seed, what is wrong, where it was struck, what the last worker passed."""
    yield f"FAILED case {outcome.case.name}, run {outcome.run_id}: play it again with --replay '{outcome.seed}'"
    if outcome.shrunk is not None and len(outcome.shrunk) < len(outcome.case.faults):
        yield f"    these are enough: --replay '{show(outcome.shrunk)}'"
    yield from (f"    {finding}" for finding in outcome.findings)
    for strike in outcome.strikes:
        recovered = "never" if strike.recovered_s is None else f"after {strike.recovered_s:.2f} s"
        yield f"    {strike.fault.kind} of pid {strike.pid} at {strike.point}; something happened again {recovered}"
    for point in outcome.trace[-TRACE_SHOWN:]:
        yield f"    the last worker passed {point}"


def _name(strike: Strike) -> str:
    return f"{strike.fault.kind} {'at a random moment' if strike.fault.point == MOMENT else strike.point}"
