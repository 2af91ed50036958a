"""The page of a report: one file that stands alone, says what the report says, and takes nothing for markup."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import main
from app.crashtest import charts
from app.crashtest.faults import KINDS, Fault, Kind
from app.crashtest.judge import Finding, Picture, Verdict
from app.crashtest.outcome import Case, Outcome, Strike
from app.crashtest.page import page, write
from app.crashtest.report import WORDS, ControlResult, Report

VOID = {"meta", "wbr"}
HOSTILE = "</style></title><script>alert('1')</script><img src=\"//evil.example/x\">&amp;\x00\x1b[31m"
WELL = Verdict("recovered")
NOTHING = Picture("completed", "null", (), (), {}, {})


def outcome(
    name: str, faults: Sequence[Fault], *, verdict: Verdict = WELL, recovered_s: float | None = 1.0, deaths: int = 1
) -> Outcome:
    strikes = [
        Strike(fault, 100 + n, fault.point, unfinished=True, at=0.0, event_seq=n, recovered_s=recovered_s)
        for n, fault in enumerate(faults)
    ]
    case = Case(name, tuple(faults))
    return Outcome(case, f"run-{name}", strikes, verdict, "ended", 2.0, deaths, [75], 2, NOTHING, ["step.before"], 0)


def many(number: int = 120) -> list[Outcome]:
    """Cases of every kind as a session has them."""
    draw = random.Random(1)
    points = [f"{thing}.{when}" for thing in ("step", "effect.receipt", "lease.renew") for when in ("before", "after")]
    kinds: Sequence[Kind] = KINDS
    found: list[Outcome] = []
    for n in range(number):
        faults = [Fault(draw.choice(kinds), draw.choice(points), 1) for _ in range(draw.choice((1, 1, 2)))]
        word = draw.choices(WORDS[:3], (90, 6, 4))[0]
        found.append(outcome(f"case_{n}", faults, verdict=Verdict(word), recovered_s=draw.expovariate(0.5)))
    return found


GOOD = Report(
    agent="errands",
    seed=7,
    wanted=100,
    outcomes=[*many(), outcome("case_struck_nothing", ())],
    controls=[ControlResult("no fence", "stale", "stop:step.before:1", ("stale", "double"), ())],
    seconds=312.5,
    lease_s=3.0,
    jitter_s=0.004,
)
BAD = replace(
    GOOD,
    agent=f"errands {HOSTILE}",
    outcomes=[
        *many(20),
        replace(
            outcome(
                "case_bad",
                (Fault("kill", HOSTILE, 1), Fault("stop", "step.before", 2)),
                verdict=Verdict("failed", [Finding("double", f"the world has {HOSTILE} 2 times, not 1")]),
                recovered_s=None,
            ),
            shrunk=(Fault("kill", HOSTILE, 1),),
            trace=[HOSTILE, "worker.end"],
        ),
    ],
    controls=[ControlResult(HOSTILE, "stale", HOSTILE, (), ())],
    required=frozenset({("kill", "step.before"), ("kill", f"never{HOSTILE}")}),
)


@dataclass
class Read(HTMLParser):
    """A page as a browser would take it; fails where an element is closed that is not open."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, text: str) -> "Read":
        read = cls()
        read.feed(text)
        read.close()
        assert read.open == []
        return read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def said(self) -> str:
        return re.sub(r"\s+", " ", self.text)

    @property
    def numbers(self) -> dict[str, float]:
        return {str(found["class"]): float(str(found["value"])) for found in self.named("data")}


@pytest.mark.parametrize("report", [GOOD, BAD], ids=["good", "bad"])
def test_it_is_well_formed_and_stands_alone(report: Report) -> None:
    text = page(report)
    assert text == page(report)
    read = Read.of(text)
    assert text.startswith("<!doctype html>\n")
    assert not {"script", "img", "link", "iframe", "object", "use", "a"} & {name for name, _ in read.tags}
    reaching = [
        name for _, attributes in read.tags for name in attributes if name in ("src", "href") or name[:2] == "on"
    ]
    assert reaching == []
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"url\(|@import|https?:", style)
    assert len(read.named("svg")) == 2


@pytest.mark.parametrize("report", [GOOD, BAD], ids=["good", "bad"])
def test_its_numbers_are_those_of_the_json(report: Report) -> None:
    told, shown = report.as_json(), Read.of(page(report)).numbers
    plain = ("cases", "processes_died", "processes_stopped", "steps_repeated", "cases_a_minute", "seconds", "seed")
    expected = {name: told[name] for name in plain}
    expected |= {f"verdict-{charts.style(word)}": told["verdicts"].get(word, 0) for word in WORDS}
    expected |= {f"recovery-{name}": value for name, value in told["recovery_s"].items()}
    for sometimes in ("failed", "cases_that_struck_nothing"):
        if told[sometimes]:
            expected[sometimes] = told[sometimes]
    assert shown == expected


def test_the_table_has_every_fault_and_point() -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", page(GOOD), re.DOTALL)
    cells = [
        [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for row in rows
    ]
    for one in GOOD.as_json()["by_point"]:
        kind, point = one["point"].split(" ")
        counts = [one["strikes"], *(one["cases"].get(word, 0) for word in WORDS)]
        assert [kind, point, *map(str, counts)] in cells


def test_the_bars_have_every_case_once() -> None:
    rows = charts.by_kind(GOOD)
    assert sum(came_to.total() for _, came_to in rows) == len(GOOD.counted)
    assert rows[-1][0] == charts.SEVERAL
    titles = set(re.findall(r"<title>(.*?)</title>", page(GOOD)))
    assert {f"{name}: {count} {word}" for name, came_to in rows for word, count in came_to.items()} <= titles


def test_the_curve_rises_to_its_top_past_the_lease() -> None:
    [path] = [str(found["d"]) for found in Read.of(page(GOOD)).named("path")]
    heights = [float(y) for y in re.findall(r"V([\d.]+)", path)]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == 22.0
    assert "lease 3.0 s" in page(GOOD)


def test_all_is_well() -> None:
    said = Read.of(page(GOOD)).said
    verdicts = ", ".join(f"{GOOD.verdicts()[word]} {word}" for word in WORDS[:3])
    assert f"120 cases struck an unfinished run of errands, and all is well: {verdicts}; 1 protection taken" in said
    assert "noticed no fence stale stale, double nothing stop:step.before:1" in said
    assert "1 more, whose faults struck no unfinished run, not counted." in said
    assert "something is wrong" not in said
    assert "Points never struck" not in said


def test_a_failed_report_says_so_and_how_to_play_it_again() -> None:
    said = Read.of(page(BAD)).said
    wrong = (
        "1 case failed; 1 negative control did not come out as it must; 1 point never struck; 100 cases were to count."
    )
    assert f"and something is wrong: {wrong}" in said
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    for words in (
        f"Play it again with --replay 'kill:{shown}:1,stop:step.before:2'",
        f"these are enough: kill:{shown}:1",
        f"double: the world has {shown} 2 times, not 1",
        f"kill of process 100 at {shown}; something happened again never",
        "NOT NOTICED",
        f"never{shown}",
    ):
        assert words in said


def test_a_control_that_finds_something_when_restored_is_not_right() -> None:
    odd = replace(GOOD, controls=[replace(GOOD.controls[0], restored=("lost",))])
    said = Read.of(page(odd)).said
    assert "something is wrong: 1 negative control did not come out as it must." in said
    assert "NOT RESTORED no fence stale stale, double lost" in said


def test_a_session_without_cases_has_a_page() -> None:
    empty = replace(GOOD, outcomes=[], controls=[], wanted=0, seconds=0.0)
    assert "No run had anything to recover from." in Read.of(page(empty)).said


def test_it_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "pages" / "errands.html"
    write(GOOD, file)
    assert file.read_text() == page(GOOD)


def test_a_comparison_has_no_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["crashtest", "--against", "plain", "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 2
    assert "--json" in done.output


def test_a_point_that_a_run_passes_only_as_its_very_last_is_told_and_one_that_nobody_struck_is_missed() -> None:
    late = outcome("case_late", (Fault("kill", "relay.settle.after_commit", 1),))
    late.strikes = [replace(strike, unfinished=False) for strike in late.strikes]
    required = frozenset({("kill", "relay.settle.after_commit"), ("kill", "step.before")})
    struck = outcome("case_early", (Fault("kill", "step.before", 1),))
    whole = replace(GOOD, wanted=1, outcomes=[struck, late], required=required)
    assert (whole.ok, whole.missed, whole.over) == (True, [], ["kill relay.settle.after_commit"])
    assert "struck only when the run was over: kill relay.settle.after_commit" in str(whole)
    part = replace(whole, outcomes=[struck])
    assert (part.ok, part.missed, part.over) == (False, ["kill relay.settle.after_commit"], [])
