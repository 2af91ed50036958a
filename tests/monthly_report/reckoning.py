"""Files made from a random seed, and what a short program of the standard library reckons from one."""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from datetime import date, timedelta

from app.agents.monthly_report.csv_file import COLUMNS
from app.agents.monthly_report.figures import MOVERS_PER_MEASURE, Counts, Figures

MEASURES = ("flights", "cancelled", "delayed_departures", "late_arrivals")
SUMS = (*MEASURES, "departure_delay_min", "arrivals")


def generated(seed: int) -> bytes:
    """A CSV of some months with gaps, airlines that come and go, and days without flights."""
    rng = random.Random(seed)
    airports = [f"A{number}" for number in range(rng.randint(1, 4))]
    carriers = [f"c{number}" for number in range(rng.randint(1, 6))]
    start = date(rng.randint(1999, 2023), rng.randint(1, 12), rng.randint(1, 28))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for day in (start + timedelta(days=number) for number in range(rng.randint(32, 200))):
        if rng.random() < 0.1:
            continue
        for origin in airports:
            for carrier in rng.sample(carriers, rng.randint(0, len(carriers))):
                flights = rng.choice([0, 1, rng.randint(0, 400)])
                cancelled = rng.randint(0, flights)
                arrivals = rng.randint(0, flights)
                writer.writerow([
                    day, origin, carrier, f"Airline, {carrier}", flights, cancelled, rng.randint(-500, 5000),
                    rng.randint(0, flights - cancelled), arrivals, rng.randint(0, arrivals), rng.randint(0, 10**6),
                ])  # fmt: skip
    return out.getvalue().encode()


def expected_sums(rows: list[dict[str, str]]) -> dict[str, int]:
    sums = {name: sum(int(row[name]) for row in rows) for name in SUMS}
    return {**sums, "rows": len(rows), "days": len({row["date"] for row in rows})}


def sums(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in (*SUMS, "rows", "days")}


def check_against_stdlib(figures: Figures, content: bytes) -> None:
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    this = figures.month.month
    by_month: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_month[row["date"][:7]].append(row)
    earlier = sorted(month for month in by_month if month < this)
    before = [row for month in earlier for row in by_month[month]]

    assert figures.rows_in_data_set == len(rows)
    assert sums(figures.month) == expected_sums(by_month[this])
    assert [counts.month for counts in figures.earlier] == earlier
    assert [sums(counts) for counts in figures.earlier] == [expected_sums(by_month[month]) for month in earlier]
    if earlier:
        assert figures.average is not None
        assert figures.average.months == len(earlier)
        assert sums(figures.average.total) == expected_sums(before)
    for groups, column in ((figures.airports, "origin"), (figures.airlines, "carrier")):
        assert [group.code for group in groups] == sorted({row[column] for row in (*before, *by_month[this])})
        for group in groups:
            assert sums(group.in_month) == expected_sums([row for row in by_month[this] if row[column] == group.code])
            assert sums(group.earlier) == expected_sums([row for row in before if row[column] == group.code])
    days = sorted({row["date"] for row in by_month[this]})
    assert [counts.day for counts in figures.days] == days
    assert [sums(counts) for counts in figures.days] == [
        expected_sums([row for row in by_month[this] if row["date"] == day]) for day in days
    ]
    assert movers(figures) == expected_movers(by_month[this], before, len(earlier))


def movers(figures: Figures) -> list[tuple[object, ...]]:
    return [
        (mover.measure, mover.rank, mover.origin, mover.carrier, mover.in_month, mover.earlier, mover.rows)
        for mover in figures.movers
    ]


def expected_movers(this: list[dict[str, str]], before: list[dict[str, str]], months: int) -> list[tuple[object, ...]]:
    if not months:
        return []
    expected: list[tuple[object, ...]] = []
    for measure in MEASURES:
        pairs: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for side, rows in enumerate((this, before)):
            for row in rows:
                pair = pairs[row["origin"], row["carrier"]]
                pair[side] += int(row[measure])
                pair[2] += 1
        moved = [(-abs(a * months - b), pair, a, b, rows) for pair, (a, b, rows) in pairs.items() if a * months != b]
        for rank, (_, pair, a, b, rows) in enumerate(sorted(moved)[:MOVERS_PER_MEASURE], start=1):
            expected.append((measure, rank, *pair, a, b, rows))
    return expected
