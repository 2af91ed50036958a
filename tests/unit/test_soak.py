"""A soak's figures: what grows is told from what is as large as it is, and the page says what the report says."""

import json
import math
import random
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.crashtest.soak_page import page, sentence, write
from app.crashtest.soak_slopes import NOISE_BYTES, Report, Samples, Series, Unit

MINUTES = 30.0
SECONDS = [10.0 * n for n in range(181)]
MB = 1e6


def series(values: list[float], unit: Unit = "bytes") -> Series:
    return Series("surefoot.things", unit, SECONDS, values)


def test_a_straight_line_has_its_slope() -> None:
    line = series([100 * MB + 1000 * s for s in SECONDS])
    assert line.growth == pytest.approx(600_000)
    assert line.slope == pytest.approx(100 * 600_000 / (100 * MB + 1000 * 1200))


def test_what_grows_until_it_is_as_old_as_it_is_kept_is_flat() -> None:
    draw = random.Random(1)
    warming = series([100 * MB * min(1.0, s / 300) * draw.uniform(0.99, 1.01) for s in SECONDS])
    assert not warming.too_steep


@pytest.mark.parametrize(
    ("a_minute", "too_steep"),
    [(0.0, False), (0.09, False), (0.11, True), (1.0, True), (-1.0, False)],
)
def test_over_one_percent_in_ten_minutes_is_too_steep(a_minute: float, too_steep: bool) -> None:
    line = series([100 * MB * (1 + a_minute / 100 * (s - 1200) / 60) for s in SECONDS])
    assert line.too_steep == too_steep


def test_a_page_more_of_a_small_table_is_no_growth_and_a_connection_more_is() -> None:
    stepped = [8192.0 if s < 1500 else 16384.0 for s in SECONDS]
    assert series(stepped).slope > 10
    assert not series(stepped).too_steep
    assert series([20.0 + s / 600 for s in SECONDS], "connections").too_steep
    leak = series([10 * 8192.0 + 2 * NOISE_BYTES * s / 600 for s in SECONDS])
    assert leak.too_steep, "a small one that grows on and on is seen"


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0]])
def test_nothing_much_is_flat(values: list[float]) -> None:
    few = Series("few", "bytes", SECONDS[: len(values)], values)
    assert (few.slope, few.too_steep) == (0.0, False)


def sampled(leak: float = 0.0, *, finishing_until: float = 1e9, removing_until: float = 1e9) -> Samples:
    samples = Samples()
    for s in SECONDS:
        measured: dict[str, tuple[Unit, float]] = {
            "memory of worker 0": ("bytes", 150 * MB),
            "connections": ("connections", 30 + math.sin(s)),
            "table surefoot.<events>": ("bytes", 5 * MB + leak * s),
            "index surefoot.events_pkey": ("bytes", 2 * MB),
        }
        if s > 500:
            measured["table surefoot.late"] = ("bytes", 8192)
        finished, removed = 5 * min(s, finishing_until), max(0.0, 5 * (min(s, removing_until) - 120))
        samples.add(s, measured, {"started": finished, "finished": finished, "removed": removed})
    return samples


def report(leak: float = 0.0, *findings: str) -> Report:
    return Report(MINUTES, 3, 120, sampled(leak), findings)


def test_what_comes_late_was_nothing_before() -> None:
    late = next(one for one in sampled().series if one.name == "table surefoot.late")
    assert (late.values[0], late.values[-1], len(late.values)) == (0.0, 8192, len(SECONDS))


def test_the_sentence_and_the_code_say_whether_something_grows() -> None:
    assert report().ok
    assert "nothing grows" in sentence(report())
    leaking = report(1000.0)
    assert [one.name for one in leaking.too_steep] == ["table surefoot.<events>"]
    assert "table surefoot.<events> (+" in sentence(leaking)
    assert not report(0.0, "worker 7 ended with 75").ok
    assert "worker 7 ended" in sentence(report(0.0, "worker 7 ended with 75"))
    told = json.loads(json.dumps(leaking.as_json()))
    assert (told["ok"], len(told["series"]), len(told["seconds"])) == (False, 5, len(SECONDS))


def test_a_load_that_stands_still_is_no_load() -> None:
    for name, still in (
        ("finished", sampled(finishing_until=1000)),
        ("removed", sampled(removing_until=1000)),
    ):
        stalled = Report(MINUTES, 3, 120, still, [])
        assert not stalled.too_steep, "all is flat"
        assert not stalled.ok
        assert f"no run was {name} from minute 18.0 to 20.0" in sentence(stalled)
    assert not Report(MINUTES, 3, 120, Samples(), []).ok, "and nothing was measured of nothing"


def test_what_grows_by_pages_is_not_judged_and_told() -> None:
    told = sentence(report(100.0))
    assert report(100.0).ok
    assert "but for 1 of 5 series, by less than 64 KiB" in told
    assert "by pages" in page(report(100.0))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_stands_alone_and_takes_nothing_for_markup(tmp_path: Path) -> None:
    write(report(1000.0), tmp_path / "pages" / "soak.html")
    text = (tmp_path / "pages" / "soak.html").read_text()
    assert text == page(report(1000.0)), "the same bytes for the same report"
    tags = Tags()
    tags.feed(text)
    names = [name for name, _ in tags.found]
    assert not {"script", "link", "img", "events"} & set(names)
    assert all(not (value or "").startswith(("http", "//")) for _, had in tags.found for value in had.values())
    assert names.count("svg") == 6
    assert sum(name == "path" for name in names) >= 8
    assert "surefoot.&lt;events&gt;" in text
    assert "too steep" in text
    assert page(Report(1, 1, 5, Samples(), [])).count("<svg") == 6, "and one of nothing"
