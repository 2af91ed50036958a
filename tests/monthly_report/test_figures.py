"""Figures computed by Postgres against a short program of the standard library, and against the published ones."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.agents.monthly_report.csv_file import COLUMNS, DailyFile, parse_daily_figures, parse_month
from app.agents.monthly_report.figures import Figures, NoData, Query, Share, compute_figures
from tests.monthly_report.reckoning import MEASURES, check_against_stdlib, generated

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "app" / "agents" / "monthly_report" / "data" / "ny_flights_2013_daily.csv"

Load = Callable[[DailyFile], Awaitable[None]]


@pytest.mark.parametrize("seed", range(12))
async def test_figures_of_a_generated_file_equal_those_of_a_stdlib_program(seed: int, query: Query, load: Load) -> None:
    content = generated(seed)
    file = parse_daily_figures(f"{seed}.csv", content)
    await load(file)
    await load(file)  # the same file again is the same data set
    months = sorted({f"{row.date:%Y-%m}" for row in file.rows})
    for month in (months[0], months[len(months) // 2], months[-1]):
        figures = await compute_figures(query, data_set=file.sha256, month=parse_month(month))
        check_against_stdlib(figures, content)
        assert Figures.model_validate_json(figures.model_dump_json()) == figures


async def test_the_comparison_sees_one_flight_too_many(query: Query, load: Load) -> None:
    content = generated(3)
    file = parse_daily_figures("3.csv", content)
    await load(file)
    figures = await compute_figures(query, data_set=file.sha256, month=parse_month(f"{file.rows[-1].date:%Y-%m}"))
    one_more = figures.month.model_copy(update={"flights": figures.month.flights + 1})
    with pytest.raises(AssertionError):
        check_against_stdlib(figures.model_copy(update={"month": one_more}), content)


async def test_the_known_figures_of_august_2013(query: Query, load: Load) -> None:
    content = FLIGHTS.read_bytes()
    file = parse_daily_figures(FLIGHTS.name, content)
    await load(file)
    figures = await compute_figures(query, data_set=file.sha256, month=parse_month("2013-08"))
    assert [figures.month.of(measure) for measure in MEASURES] == [29_327, 486, 6_372, 6_852]
    assert figures.month.cancellation_rate.percent == 1.66
    assert figures.rows_in_data_set == 11_864
    assert figures.month.rows == 1_018
    check_against_stdlib(figures, content)


def test_the_known_figures_occur_nowhere_in_product_code() -> None:
    pattern = re.compile(r"(?<![\d.])(29[,_]?327|486|6[,_]?372|6[,_]?852)(?!\d)")
    files = [
        path
        for package in ("app", "steps", "transactions", "outbox")
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".sql", ".md", ".toml", ".yaml", ".html", ".json", ".txt", ".js", ".css"}
    ]
    assert len(files) > 10
    assert [str(path) for path in files if pattern.search(path.read_text())] == []


async def test_a_month_without_data_is_refused_with_the_months_there_are(query: Query, load: Load) -> None:
    file = parse_daily_figures(FLIGHTS.name, FLIGHTS.read_bytes())
    await load(file)
    with pytest.raises(
        NoData, match=r"no figures for 2014-01 .+ it has 2013-01, 2013-02, .+, 2013-12: choose one of these\.$"
    ):
        await compute_figures(query, data_set=file.sha256, month=parse_month("2014-01"))
    with pytest.raises(NoData, match=r"^Data set 0{12} holds no figures at all; load the file first\.$"):
        await compute_figures(query, data_set="0" * 64, month=parse_month("2013-08"))


async def test_the_first_month_has_nothing_to_compare_with(query: Query, load: Load) -> None:
    file = parse_daily_figures(FLIGHTS.name, FLIGHTS.read_bytes())
    await load(file)
    figures = await compute_figures(query, data_set=file.sha256, month=parse_month("2013-01"))
    assert figures.earlier == ()
    assert figures.average is None
    assert figures.movers == ()
    assert set(figures.change.model_dump().values()) == {None}


async def test_changes_are_exact_and_rounded_once(query: Query, load: Load) -> None:
    rows = [
        "2020-01-01,A,x,X,100,1,0,10,90,9,1",  # two earlier months: 300 flights, 4 cancelled, mean 150
        "2020-02-01,A,x,X,200,3,0,20,180,18,1",
        "2020-03-01,A,x,X,175,7,50,42,160,32,1",
        "2020-04-01,A,x,X,999,9,0,9,9,9,1",  # later: of no account
    ]
    file = parse_daily_figures("a.csv", "\n".join([",".join(COLUMNS), *rows]).encode())
    await load(file)
    figures = await compute_figures(query, data_set=file.sha256, month=parse_month("2020-03"))
    assert figures.average is not None
    assert figures.average.per_month["flights"] == 150.0
    assert figures.change.flights_percent == 16.67
    assert figures.change.cancellation_points == 2.67  # 4 % - 1.333.. %
    assert figures.change.delayed_points == 14.86  # 42/168 - 30/296
    assert figures.change.late_points == 10.0
    assert figures.month.mean_departure_delay_min == 0.3
    assert [(mover.measure, mover.moved_by, mover.average) for mover in figures.movers] == [
        ("flights", 25.0, 150.0),
        ("cancelled", 5.0, 2.0),
        ("delayed_departures", 27.0, 15.0),
        ("late_arrivals", 18.5, 13.5),
    ]


@pytest.mark.parametrize(
    ("part", "whole", "percent"),
    [(1, 3, 33.33), (2, 3, 66.67), (1, 800, 0.13), (0, 5, 0.0), (5, 5, 100.0), (0, 0, None)],
)
def test_a_share_is_rounded_half_up_to_two_decimals(part: int, whole: int, percent: float | None) -> None:
    assert Share(part=part, whole=whole).percent == percent
