"""The month's figures against the months before it, computed by Postgres (figures.sql) and exact until they are shown.

Source of every number: the rows of `monthly_report.daily_figures` of one data set. A count is flights unless its name
has a unit. A share keeps its part and its whole; only `_decimal` turns fractions into decimals.
The models are what a tool hands to a language model, so they are pydantic and serialise to plain JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, computed_field

from app.agents.monthly_report.csv_file import Month

MOVERS_PER_MEASURE = 5
MONTHS_NAMED_MAX = 24

Measure = Literal["flights", "cancelled", "delayed_departures", "late_arrivals"]
Kind = Literal["airport", "airline"]


class NoData(ValueError):
    """The data set has no row in the month asked for; the message names the months it has. Not worth a retry."""


class Query(Protocol):
    """Runs one SELECT with `:name` parameters (SQLAlchemy's text style) and returns its rows by column name."""

    async def __call__(self, sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]: ...


def _decimal(part: int, whole: int, *, places: int) -> float | None:
    """part / whole to so many places, a half away from zero; None where the whole is zero."""
    if whole == 0:
        return None
    exact = Fraction(part, whole)
    digits = math.floor(abs(exact) * 10**places + Fraction(1, 2))
    return float(Fraction(-digits if exact < 0 else digits, 10**places))


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Share(_Model):
    """`part` flights out of `whole`; percent with two decimals, None when there is nothing to take a share of."""

    part: int
    whole: int

    @computed_field
    @property
    def percent(self) -> float | None:
        return _decimal(100 * self.part, self.whole, places=2)

    def points_above(self, other: Share) -> float | None:
        """How many percentage points this share lies above another one, from the exact fractions."""
        crossed = self.part * other.whole - other.part * self.whole
        return _decimal(100 * crossed, self.whole * other.whole, places=2)


class Sums(_Model):
    """Sums over `rows` rows of the data set, which cover `days` different days."""

    rows: int
    days: int
    flights: int
    cancelled: int
    delayed_departures: int
    departure_delay_min: int
    arrivals: int
    late_arrivals: int


class Counts(Sums):
    """Sums with the shares that follow from them."""

    @computed_field
    @property
    def cancellation_rate(self) -> Share:
        """Cancelled out of all scheduled flights."""
        return Share(part=self.cancelled, whole=self.flights)

    @computed_field
    @property
    def delayed_rate(self) -> Share:
        """Departures more than 15 minutes late out of the flights that departed."""
        return Share(part=self.delayed_departures, whole=self.flights - self.cancelled)

    @computed_field
    @property
    def late_rate(self) -> Share:
        """Arrivals more than 15 minutes late out of the recorded arrivals."""
        return Share(part=self.late_arrivals, whole=self.arrivals)

    @computed_field
    @property
    def mean_departure_delay_min(self) -> float | None:
        """Minutes per departed flight, early ones counted below zero; one decimal."""
        return _decimal(self.departure_delay_min, self.flights - self.cancelled, places=1)

    def of(self, measure: Measure) -> int:
        counts: dict[Measure, int] = {
            "flights": self.flights,
            "cancelled": self.cancelled,
            "delayed_departures": self.delayed_departures,
            "late_arrivals": self.late_arrivals,
        }
        return counts[measure]


class MonthCounts(Counts):
    """The sums of one month, named `YYYY-MM`."""

    month: str


class DayCounts(Sums):
    """The sums of one day, named `YYYY-MM-DD`."""

    day: str


class Change(_Model):
    """The month against the average of the earlier months; None where there is nothing to compare with.

    Counts are compared with the mean per month, in percent of it. Rates are compared with the rate of all earlier
    months taken together (so a month weighs by its flights), in percentage points.
    """

    flights_percent: float | None
    cancellation_points: float | None
    delayed_points: float | None
    late_points: float | None


class Average(_Model):
    """The average of `months` earlier months, whose sums are `total`; a mean per month has one decimal."""

    months: int
    total: Counts

    def mean(self, measure: Measure) -> float | None:
        return _decimal(self.total.of(measure), self.months, places=1)

    @computed_field
    @property
    def per_month(self) -> dict[Measure, float | None]:
        measures: tuple[Measure, ...] = ("flights", "cancelled", "delayed_departures", "late_arrivals")
        return {measure: self.mean(measure) for measure in measures}


class Group(_Model):
    """One airport or airline: its month, all its earlier months together, and the change between them."""

    code: str
    name: str
    in_month: Counts
    earlier: Counts
    change: Change


class Mover(_Model):
    """An airline at an airport whose count of `measure` moved far: `earlier` is the sum over `months` earlier months.

    `rows` says how many rows of the data set the pair rests on, the month and the earlier ones together.
    """

    measure: Measure
    rank: int
    origin: str
    carrier: str
    airline: str
    rows: int
    in_month: int
    earlier: int
    months: int

    @computed_field
    @property
    def average(self) -> float | None:
        return _decimal(self.earlier, self.months, places=1)

    @computed_field
    @property
    def moved_by(self) -> float | None:
        """The month minus that average, from the exact fraction."""
        return _decimal(self.in_month * self.months - self.earlier, self.months, places=1)


class Figures(_Model):
    """Everything the report says in numbers. Without earlier months `earlier` and `movers` are empty."""

    data_set: str
    rows_in_data_set: int
    month: MonthCounts
    earlier: tuple[MonthCounts, ...]
    average: Average | None
    change: Change
    airports: tuple[Group, ...]
    airlines: tuple[Group, ...]
    movers: tuple[Mover, ...]
    days: tuple[DayCounts, ...]


async def compute_figures(query: Query, *, data_set: str, month: Month) -> Figures:
    """The figures of `month` in the data set with that SHA-256, from four SELECTs.

    Raises NoData for a month, or a data set, without rows. Errors of the query come through as they are.
    """
    sql = _statements()
    months = [MonthCounts.model_validate(row) for row in await query(sql["months"], data_set=data_set)]
    this = next((counts for counts in months if counts.month == str(month)), None)
    if this is None:
        raise NoData(_no_data(data_set, month, [counts.month for counts in months]))
    earlier = tuple(counts for counts in months if counts.month < this.month)
    average = Average(months=len(earlier), total=_sum(earlier)) if earlier else None

    span = {"data_set": data_set, "first": month.first, "next_first": month.next_first}
    groups = await query(sql["groups"], **span)
    movers = await query(sql["movers"], **span, months=len(earlier), limit=MOVERS_PER_MEASURE) if earlier else ()
    days = await query(sql["days"], **span)
    return Figures(
        data_set=data_set,
        rows_in_data_set=sum(counts.rows for counts in months),
        month=this,
        earlier=earlier,
        average=average,
        change=_change(this, _sum(earlier), months=len(earlier)),
        airports=_groups("airport", groups, months=len(earlier)),
        airlines=_groups("airline", groups, months=len(earlier)),
        movers=tuple(Mover.model_validate({**row, "months": len(earlier)}) for row in movers),
        days=tuple(DayCounts.model_validate(row) for row in days),
    )


def _statements() -> dict[str, str]:
    """The statements of figures.sql by the name above each."""
    text = Path(__file__).with_name("figures.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _sum(months: Sequence[Counts]) -> Counts:
    return Counts(**{field: sum(getattr(counts, field) for counts in months) for field in Counts.model_fields})


def _groups(kind: Kind, rows: Sequence[Mapping[str, Any]], *, months: int) -> tuple[Group, ...]:
    """The groups of one kind, in the order of the query, their up to two rows brought together."""
    sides: dict[str, dict[bool, Counts]] = {}
    names: dict[str, str] = {}
    for row in rows:
        if row["kind"] == kind:
            sides.setdefault(row["code"], {})[row["in_month"]] = Counts.model_validate(row)
            names[row["code"]] = row["name"]  # the month's row comes last: its name is the newest
    found: list[Group] = []
    for code, side in sides.items():
        in_month, earlier = side.get(True, _sum(())), side.get(False, _sum(()))
        change = _change(in_month, earlier, months=months)
        found.append(Group(code=code, name=names[code], in_month=in_month, earlier=earlier, change=change))
    return tuple(found)


def _change(this: Counts, earlier: Counts, *, months: int) -> Change:
    return Change(
        flights_percent=_decimal(100 * (this.flights * months - earlier.flights), earlier.flights, places=2),
        cancellation_points=this.cancellation_rate.points_above(earlier.cancellation_rate),
        delayed_points=this.delayed_rate.points_above(earlier.delayed_rate),
        late_points=this.late_rate.points_above(earlier.late_rate),
    )


def _no_data(data_set: str, month: Month, months: Sequence[str]) -> str:
    if not months:
        return f"Data set {data_set[:12]} holds no figures at all; load the file first."
    some = ", ".join(months)
    if len(months) > MONTHS_NAMED_MAX:
        some = f"{len(months)} months from {months[0]} to {months[-1]}"
    return f"There are no figures for {month} in data set {data_set[:12]}; it has {some}: choose one of these."
