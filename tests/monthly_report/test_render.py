"""The report: the same bytes for the same input, valid SVG inside, and no number that is not from the figures."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.agents.monthly_report.csv_file import COLUMNS, DailyFile, Month, parse_daily_figures, parse_month
from app.agents.monthly_report.documents import Document, find_documents
from app.agents.monthly_report.figures import Figures, Query, compute_figures
from app.agents.monthly_report.render import chart, render

DATA = Path(__file__).parents[2] / "app" / "agents" / "monthly_report" / "data"
FLIGHTS = DATA / "ny_flights_2013_daily.csv"
WEATHER = DATA / "ny_weather_2013_daily.csv"

Load = Callable[[DailyFile], Awaitable[None]]


@pytest.fixture
def month() -> Month:
    return parse_month("2013-08")


@pytest.fixture
async def figures(query: Query, load: Load, month: Month) -> Figures:
    file = parse_daily_figures(FLIGHTS.name, FLIGHTS.read_bytes())
    await load(file)
    return await compute_figures(query, data_set=file.sha256, month=month)


@pytest.fixture
def documents(figures: Figures, month: Month) -> list[Document]:
    return find_documents(month, weather=WEATHER, notes=None, days=figures.days)


def images(report: str) -> list[bytes]:
    return [base64.b64decode(data) for data in re.findall(r"\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", report)]


def test_the_same_input_gives_the_same_bytes_in_any_thread_and_process(
    figures: Figures, documents: list[Document], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(4) as pool:
        reports = set(pool.map(lambda _: render(figures, documents, commentary="Storms."), range(8)))
    assert len(reports) == 1
    (tmp_path / "figures.json").write_text(figures.model_dump_json())
    program = (
        "import pathlib, sys, hashlib\n"
        "from app.agents.monthly_report.figures import Figures\n"
        "from app.agents.monthly_report.render import chart\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"figures = Figures.model_validate_json(pathlib.Path({str(tmp_path / 'figures.json')!r}).read_text())\n"
        "print(hashlib.sha256(chart(figures, []).encode()).hexdigest())\n"
    )
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == hashlib.sha256(chart(figures, []).encode()).hexdigest()


def test_the_chart_is_valid_svg_inside_the_one_text(figures: Figures, documents: list[Document]) -> None:
    report = render(figures, documents)
    [image] = images(report)
    root = ElementTree.fromstring(image)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "2013-08" in words
    assert "on a day the documents name" in words
    assert not re.search(rb"<(script|image|foreignObject)|(?<!xmlns:)href=\"http", image)
    assert len(report) < 200_000


def test_the_report_tells_the_figures_and_cites_each_document(figures: Figures, documents: list[Document]) -> None:
    report = render(figures, documents)
    for count in (
        figures.month.flights,
        figures.month.cancelled,
        figures.month.delayed_departures,
        figures.month.late_arrivals,
    ):
        assert f"**{count:,}" in report
    for document in documents:
        assert f"Document **{document.id}**, SHA-256 `{document.sha256}`" in report
    for month in (*figures.earlier, figures.month):
        assert f"| {month.month} | {month.rows:,} | {month.days} | {month.flights:,} |" in report
    for group in (*figures.airports, *figures.airlines):
        assert f"| {group.code} | {group.name} | {group.in_month.rows:,} | {group.in_month.flights:,} |" in report
    assert figures.data_set in report
    assert "rests on 1,018 rows of 31 days; with the 7 earlier months the report rests on 7,851 rows." in report
    widths = [
        {line.count(" | ") for line in block.splitlines()} for block in report.split("\n\n") if block.startswith("|")
    ]
    assert widths
    assert all(len(width) == 1 for width in widths)


def test_commentary_is_taken_over_verbatim_in_its_own_section(figures: Figures) -> None:
    commentary = "**Storms** on 2013-08-28 | see `weather-2013-08`\n\n- and <more>"
    assert f"\n\n## Commentary\n\n{commentary}\n\n## Where" in render(figures, [], commentary=commentary)
    assert "Commentary" not in render(figures, [], commentary="  \n")
    assert "No supporting documents were found for this month." in render(figures, [])


def test_names_from_the_file_cannot_become_markup(figures: Figures) -> None:
    group = figures.airports[0].model_copy(update={"code": "X|Y", "name": "<b>[a](b)*"})
    report = render(figures.model_copy(update={"airports": (group,)}), [])
    assert r"| X\|Y | \<b\>\[a\](b)\* |" in report


def test_a_long_document_is_quoted_in_part(figures: Figures) -> None:
    text = "# T\n\n" + "word " * 1000
    document = Document(id="note-a", title="T", sha256="0" * 64, text=text, source="a.md")
    report = render(figures, [document])
    assert "> # T\n>\n> word word" in report
    assert "more characters]" in report


async def test_a_first_month_renders_without_anything_to_compare_with(query: Query, load: Load) -> None:
    header = ",".join(COLUMNS)
    file = parse_daily_figures("one.csv", f"{header}\n2020-02-01,A,x,X,0,0,0,0,0,0,0\n".encode())
    await load(file)
    report = render(await compute_figures(query, data_set=file.sha256, month=parse_month("2020-02")), [])
    assert "| Cancelled | 0 (n/a) | n/a | n/a |" in report
    assert "no earlier month to compare with" in report
    ElementTree.fromstring(images(report)[0])
