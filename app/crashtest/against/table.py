"""The table of a match: what became of each contender's run in each window, and what that comes to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.crashtest.against.contenders import SUREFOOT
from app.crashtest.against.task import WINDOWS
from app.crashtest.faults import Fault

RIGHT = "once each"
EXPECTED = 1  # of each effect
LEFT_ALONE = "left alone"
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Played:
    """One case, counted in the world. `window`: where it was killed, None for a run that was left alone.

    `calls_repeated`: model calls beyond those of a run that is left alone. `starts`: of its process,
    with the killed one. `seconds`: from the kill until the run had ended.
    """

    contender: str
    window: str | None
    orders: int
    publications: int
    calls_repeated: int
    ended: bool
    starts: int
    seconds: float

    @property
    def counts(self) -> Mapping[str, int]:
        return {"order": self.orders, "publication": self.publications}

    @property
    def duplicates(self) -> int:
        return sum(max(0, count - EXPECTED) for count in self.counts.values())

    @property
    def losses(self) -> int:
        return sum(max(0, EXPECTED - count) for count in self.counts.values())

    @property
    def seed(self) -> str:
        """What `--replay` takes."""
        return "undisturbed" if self.window is None else str(Fault("kill", self.window, 1))

    def __str__(self) -> str:
        wrong = [f"{count} {effect}s" for effect, count in self.counts.items() if count != EXPECTED]
        return ", ".join(wrong + ([] if self.ended else ["not ended"])) or RIGHT


@dataclass(frozen=True, slots=True)
class Table:
    """All cases of a match. `versions`: of each contender, in the order of the columns. `seconds`: what it took."""

    played: Sequence[Played]
    versions: Mapping[str, str]
    seconds: float

    @property
    def ok(self) -> bool:
        """False when Surefoot itself doubled or lost something, or did not end. The others are measured, not judged."""
        return all(not (p.duplicates or p.losses) and p.ended for p in self.of(SUREFOOT))

    def of(self, contender: str) -> list[Played]:
        return [played for played in self.played if played.contender == contender]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """A row a window, with the words that play it again; then the sums, a column a contender."""
        names = [*self.versions]
        rows = [["killed", *names, "play it again"], *self._windows(), [""] * (len(names) + 2), *self._sums()]
        widths = [max(len(row[n]) for row in rows) for n in range(len(names) + 2)]
        for row in rows:
            yield _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield ""
        yield "once each: one order in the database, one publication at the service, as there should be"
        yield from (f"{name}: {self.versions[name]}" for name in names)
        yield f"{len(self.played)} cases in {self.seconds:.0f} s"

    def _windows(self) -> Iterator[list[str]]:
        for window in dict.fromkeys(played.window for played in self.played):
            row = {played.contender: str(played) for played in self.played if played.window == window}
            again = "" if window is None else f"--replay {Fault('kill', window, 1)}"
            title = LEFT_ALONE if window is None else WINDOWS[window].title
            yield [title, *(row.get(name, "-") for name in self.versions), again]

    def _sums(self) -> Iterator[list[str]]:
        for title, value in self.sums().items():
            yield [title, *(str(value[name]) for name in self.versions), ""]

    def sums(self) -> Mapping[str, Mapping[str, int]]:
        """By what is summed up, then by contender."""
        cases = {name: self.of(name) for name in self.versions}
        return {
            "duplicates": {name: sum(p.duplicates for p in of) for name, of in cases.items()},
            "losses": {name: sum(p.losses for p in of) for name, of in cases.items()},
            "runs that did not end": {name: sum(not p.ended for p in of) for name, of in cases.items()},
            "model calls repeated": {name: sum(p.calls_repeated for p in of) for name, of in cases.items()},
        }

    def as_json(self) -> dict[str, Any]:
        cases = [
            {**asdict(p), "duplicates": p.duplicates, "losses": p.losses, "replay": p.seed, "verdict": str(p)}
            for p in self.played
        ]
        return {
            "ok": self.ok,
            "versions": dict(self.versions),
            "seconds": self.seconds,
            "cases": cases,
            "sums": {title: dict(value) for title, value in self.sums().items()},
        }
