"""A case and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.crashtest.faults import Fault, Faults, show
from app.crashtest.judge import End, Finding, Picture, Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """`broken`: functions (`module:name`) that break the product in every worker first; only controls have any."""

    name: str
    faults: Faults
    broken: tuple[str, ...] = ()


@dataclass(slots=True)
class Strike:
    """A fault that was seen to strike process `pid` at `point`; `unfinished`: the run was not over then.

    `recovered_s`: until something happened for the run again; None when nothing did or had to.
    """

    fault: Fault
    pid: int
    point: str
    unfinished: bool
    at: float
    event_seq: int
    recovered_s: float | None = None


@dataclass(slots=True)
class Outcome:
    """What became of a case. `deaths`: processes that a fault killed; `exits`: how the others ended that did.

    `trace`: the points that the last worker passed. `connections`: to services, where these were counted. `shrunk`: the
    fewest faults that do it, if that was sought.
    """

    case: Case
    run_id: str
    strikes: list[Strike]
    verdict: Verdict
    end: End
    seconds: float
    deaths: int
    exits: list[int]
    repeated: int
    picture: Picture
    trace: list[str]
    connections: int
    shrunk: Faults | None = None

    @property
    def counts(self) -> bool:
        """Whether a fault was seen to strike the unfinished run."""
        return any(strike.unfinished for strike in self.strikes)

    @property
    def failed(self) -> bool:
        return self.verdict.word == "failed"

    @property
    def findings(self) -> Sequence[Finding]:
        return self.verdict.findings if self.failed else ()

    @property
    def seed(self) -> str:
        return show(self.case.faults)
