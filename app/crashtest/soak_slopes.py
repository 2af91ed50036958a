"""What was measured over a soak, and whether anything still grows: the slope of each series over its last two
thirds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Unit = Literal["bytes", "connections"]
SLOPE_MAX = 1.0  # % in 10 minutes
# A table grows by pages, and an index splits one at a time: less than so much in 10 minutes cannot be told from that.
NOISE_BYTES = 64 * 1024
_TEN_MINUTES_S = 600.0
_FROM = 1 / 3
_PARTS = 10  # of what is judged: in each of them runs have to finish, and others to be removed


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that was measured: `values` at `seconds` from the start."""

    name: str
    unit: Unit
    seconds: Sequence[float]
    values: Sequence[float]

    @property
    def last(self) -> tuple[Sequence[float], Sequence[float]]:
        """What was measured in the last two thirds."""
        begins = self.seconds[0] + (self.seconds[-1] - self.seconds[0]) * _FROM if self.seconds else 0.0
        kept = [(s, v) for s, v in zip(self.seconds, self.values, strict=True) if s >= begins]
        return [s for s, _ in kept], [v for _, v in kept]

    @property
    def growth(self) -> float:
        """By least squares, in its unit in 10 minutes."""
        seconds, values = self.last
        if len(seconds) < 2:
            return 0.0
        middle, mean = sum(seconds) / len(seconds), sum(values) / len(values)
        spread = sum((s - middle) ** 2 for s in seconds)
        rise = sum((s - middle) * (v - mean) for s, v in zip(seconds, values, strict=True))
        return _TEN_MINUTES_S * rise / spread if spread else 0.0

    @property
    def slope(self) -> float:
        """The same in % of the mean."""
        _, values = self.last
        mean = sum(values) / len(values) if values else 0.0
        return 100 * self.growth / mean if mean else 0.0

    @property
    def too_steep(self) -> bool:
        """Over 1 % in 10 minutes, and of a size by more than pages at a time."""
        return self.slope > SLOPE_MAX and not self.excused

    @property
    def excused(self) -> bool:
        """Over 1 % in 10 minutes, but of a size, and by no more than pages."""
        return self.slope > SLOPE_MAX and self.unit == "bytes" and self.growth < NOISE_BYTES


@dataclass(slots=True)
class Samples:
    """Everything that was measured, at the same moments. `counts`: how many runs were started, finished, removed."""

    seconds: list[float] = field(default_factory=list[float])
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    units: dict[str, Unit] = field(default_factory=dict[str, Unit])
    counts: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, at_s: float, measured: Mapping[str, tuple[Unit, float]], counts: Mapping[str, float]) -> None:
        """What is not there any more, or not yet, is 0 at this moment."""
        self.seconds.append(at_s)
        for name, (unit, _) in measured.items():
            self.units.setdefault(name, unit)
        for name in self.units:
            self.values.setdefault(name, [0.0] * (len(self.seconds) - 1))
            self.values[name].append(measured.get(name, ("bytes", 0.0))[1])
        for name, count in counts.items():
            self.counts.setdefault(name, []).append(count)

    @property
    def series(self) -> Sequence[Series]:
        return [Series(name, self.units[name], self.seconds, values) for name, values in self.values.items()]

    def stood_still(self, name: str) -> str | None:
        """In words, when this count did not grow in some part of the last two thirds."""
        seconds, counts = Series(name, "connections", self.seconds, self.counts.get(name, [])).last
        if len(seconds) <= _PARTS:
            return f"too little was measured to tell whether runs were {name} all the time"
        at = [n * (len(seconds) - 1) // _PARTS for n in range(_PARTS + 1)]
        for begin, end in pairwise(at):
            if counts[end] <= counts[begin]:
                return f"no run was {name} from minute {seconds[begin] / 60:.1f} to {seconds[end] / 60:.1f}"
        return None

    def rate(self, name: str) -> Series:
        """A count by the minute, between two moments."""
        pairs = list(pairwise(zip(self.seconds, self.counts.get(name, ()), strict=False)))
        return Series(
            name, "connections", [b[0] for _, b in pairs], [60 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What a soak came to. `findings`: what else was wrong, in words."""

    minutes: float
    workers: int
    keep_s: float
    samples: Samples
    findings: Sequence[str]

    @property
    def too_steep(self) -> Sequence[Series]:
        return [series for series in self.samples.series if series.too_steep]

    @property
    def excused(self) -> Sequence[Series]:
        return [series for series in self.samples.series if series.excused]

    @property
    def wrong(self) -> Sequence[str]:
        """Everything but slopes: a load that stands still is flat, and no load."""
        still = [self.samples.stood_still(name) for name in ("finished", "removed")]
        return [*self.findings, *(words for words in still if words is not None)]

    @property
    def ok(self) -> bool:
        return not self.too_steep and not self.wrong

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "ok": self.ok,
            "minutes": self.minutes,
            "workers": self.workers,
            "keep_s": self.keep_s,
            "slope_max": SLOPE_MAX,
            "noise_bytes": NOISE_BYTES,
            "findings": list(self.wrong),
            "seconds": self.samples.seconds,
            "counts": self.samples.counts,
            "series": [
                {
                    "name": series.name,
                    "unit": series.unit,
                    "slope": series.slope,
                    "growth": series.growth,
                    "too_steep": series.too_steep,
                    "excused": series.excused,
                    "values": series.values,
                }
                for series in self.samples.series
            ],
        }
