"""Each kind of system that an effect can meet, under each fault: what is in the world at the end, as a table.

`surefoot crashtest --systems` plays it, and compares it with the table in outbox/README.md.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from app.crashtest.faults import Faults, parse
from app.crashtest.fork import Forks
from app.crashtest.outcome import Outcome
from app.crashtest.place import Server
from app.crashtest.session import Options, crashtest
from app.crashtest.subject import Subject
from app.crashtest.subjects import agents_with, bundled

AGENT = "errands"
SYSTEMS: Mapping[str, str] = MappingProxyType(
    {"honours keys": "open_ticket", "can be searched": "publish", "neither": "pay"}
)
FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "the response is lost": "lost-response:connection:1",
        "no answer in time, though it was done": "late:connection:1",
        "no answer in time, and nothing done": "silence:connection:1",
        "500 after the commit": "server-error:connection:1",
        "429 with Retry-After": "rate-limited:connection:1",
        "garbage instead of an answer": "garbage:connection:1",
        "the connection is refused": "refused:connection:1",
        "the connection is reset before the first byte": "reset:connection:1",
        "worker killed before the claim commits": "kill:tool.effect.before_commit:1",
        "worker killed after the claim": "kill:tool.effect.after_commit:1",
        "worker killed before it sends": "kill:effect.before_send:1",
        "worker killed after it sent": "kill:effect.after_send:1",
        "worker killed before the receipt commits": "kill:effect.answered.before_commit:1",
        "worker killed after the receipt": "kill:effect.answered.after_commit:1",
        "stale worker wakes before it sends": "freeze:effect.before_send:1",
        "stale worker wakes after it sent": "freeze:effect.after_send:1",
        "stale worker wakes before the receipt commits": "freeze:effect.answered.before_commit:1",
    }
)
ONE, DESK, SHOWN = "one", "one; UNKNOWN on the desk", "one, or a duplicate that is shown"
_WORDS: Mapping[str, str] = MappingProxyType({"recovered": ONE, "on the desk": DESK, "residual": SHOWN})
# Where nothing can have been sent, a person is never asked; where a system can be asked, neither.
NEVER_ASKED = ("the connection is refused", "429 with Retry-After", "worker killed before the claim commits")
BEGIN, END = "<!-- systems: made by `surefoot crashtest --systems --write` -->", "<!-- end of systems -->"


@dataclass(frozen=True, slots=True)
class Systems:
    """`cells`: what the world had, by fault and system. `wrong`: what should not be, in words."""

    cells: Mapping[tuple[str, str], str]
    wrong: Sequence[str]

    def __str__(self) -> str:
        lines = [f"| fault | {' | '.join(SYSTEMS)} |", "|---|" + "---|" * len(SYSTEMS)]
        lines += [f"| {fault} | {' | '.join(self.cells[fault, system] for system in SYSTEMS)} |" for fault in FAULTS]
        return "\n".join(lines)


async def systems(server: Server, folder: Path, *, workers: int, say: Callable[[str], None]) -> Systems:
    """Play every fault on every kind of system. Raises as `crashtest` does."""
    cells: dict[tuple[str, str], str] = {}
    wrong: list[str] = []
    for system, tool in SYSTEMS.items():
        say(f"a system that {system}" if system != "neither" else "a system that can do neither")
        place = folder / tool
        place.mkdir()
        played = [parse(seed) for seed in FAULTS.values()]
        options = Options(replay=played, workers=workers, controls=False, say=say)
        report = await crashtest(server, place, _only(tool), agents=agents_with(AGENT, None), options=options)
        by_faults: dict[Faults, Outcome] = {outcome.case.faults: outcome for outcome in report.outcomes}
        for fault, faults in zip(FAULTS, played, strict=True):
            outcome = by_faults[faults]
            cells[fault, system] = _WORDS.get(outcome.verdict.word, "WRONG") if outcome.counts else "NOT STRUCK"
            wrong += [f"{system}, {fault}: {why}" for why in _wrong(system, fault, outcome)]
    return Systems(cells, wrong)


def _only(tool: str) -> Callable[[Forks, Path], AbstractAsyncContextManager[Subject]]:
    @asynccontextmanager
    async def opens(forks: Forks, folder: Path) -> AsyncGenerator[Subject]:
        async with bundled(AGENT, forks, folder) as subject:
            yield replace(subject, input={"only": tool}, rows=())

    return opens


def _wrong(system: str, fault: str, outcome: Outcome) -> Sequence[str]:
    if not outcome.counts:
        return [f"{outcome.seed} struck nothing"]
    if outcome.failed:
        return [str(finding) for finding in outcome.findings]
    if outcome.verdict.word != "recovered" and (system != "neither" or fault in NEVER_ASKED):
        return [f"{outcome.verdict.word}, where nobody has to be asked"]
    return ()


def written(readme: str) -> str | None:
    """The table of a README, between its marks. None: it has none."""
    _, begun, rest = readme.partition(BEGIN + "\n")
    table, ended, _ = rest.partition("\n" + END)
    return table if begun and ended else None


def write(readme: str, table: Systems) -> str:
    """The README with this table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"
