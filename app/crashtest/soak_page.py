"""The page of a soak: one file that stands alone, with a curve for what was measured and a table of all slopes."""

from collections.abc import Sequence
from pathlib import Path

from app.crashtest.markup import Element, html, tag
from app.crashtest.soak_slopes import NOISE_BYTES, SLOPE_MAX, Report, Series

_STYLE = Path(__file__).with_name("page.css")
_WIDTH, _TOP, _PLOT, _LEFT, _RIGHT = 360, 12.0, 150.0, 52.0, 12.0
_TICKS = 4
_SHOWN = 8
# Told apart without their colours too, by the dashes.
_LINES = (
    ("#2c8c7e", None), ("#8a6fd1", None), ("#d9a021", None), ("#cf3340", None),
    ("#2c8c7e", "4 2"), ("#8a6fd1", "4 2"), ("#d9a021", "4 2"), ("#cf3340", "4 2"),
)  # fmt: skip


def write(report: Report, file: Path) -> None:
    """Write the page to `file`, in a folder that is made if it has to be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(report), encoding="utf-8")


def page(report: Report) -> str:
    """The whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"Soak: {'flat' if report.ok else 'something grows'}"),
        tag("style", _STYLE.read_text(encoding="utf-8")),
    )
    main = tag("main", _heading(report), _charts(report), _table(report))
    return html(tag("html", head, tag("body", main), lang="en"))


def sentence(report: Report) -> str:
    """What was measured, and what it came to."""
    finished = max(report.samples.counts.get("finished", [0]))
    did = f"{report.workers} workers at full load for {report.minutes:g} minutes finished {finished:.0f} runs"
    if report.ok:
        flat = f"{did}, and nothing grows by more than {SLOPE_MAX:g} % in 10 minutes over the last two thirds"
        return f"{flat}{_but(report)}."
    steep = [f"{series.name} ({series.slope:+.1f} %)" for series in report.too_steep]
    return f"{did}, and something is wrong: {'; '.join([*report.wrong, *steep])}."


def _but(report: Report) -> str:
    less = f"by less than {NOISE_BYTES // 1024} KiB"
    return f", but for {len(report.excused)} of {len(report.samples.series)} series, {less}" if report.excused else ""


def _heading(report: Report) -> Element:
    kept = f"What is over was removed {report.keep_s:g} s after its end; everything was measured at the same moments."
    return tag(
        "header",
        tag("p", "flat" if report.ok else "something is wrong", class_="badge"),
        tag("h1", sentence(report)),
        tag("p", kept, class_="quiet"),
        class_="ok" if report.ok else "wrong",
    )


def _charts(report: Report) -> Element:
    series, samples = report.samples.series, report.samples
    largest = sorted((one for one in series if _kind(one) == "table"), key=lambda one: -max(one.values))[:_SHOWN]
    indexes = sorted((one for one in series if _kind(one) == "index"), key=lambda one: -max(one.values))[:_SHOWN]
    return tag(
        "section",
        tag("h2", "Charts"),
        tag(
            "div",
            _figure("Memory of the workers, MB", [one for one in series if _kind(one) == "memory"]),
            _figure("Connections", [one for one in series if one.unit == "connections"]),
            _figure("All tables and indexes, MB", [one for one in series if _kind(one) == "all"]),
            _figure("The largest tables, MB", largest),
            _figure("The largest indexes, MB", indexes),
            _figure("Runs a minute", [samples.rate(name) for name in samples.counts]),
            class_="charts",
        ),
    )


def _kind(series: Series) -> str:
    return series.name.partition(" ")[0]


def _figure(title: str, series: Sequence[Series]) -> Element:
    keys = [
        tag("span", tag("span", class_="key", style=f"background: {_LINES[n % len(_LINES)][0]}"), one.name)
        for n, one in enumerate(series)
    ]
    return tag("figure", tag("figcaption", title), _curves(title, series), tag("p", *keys, class_="keys"))


def _curves(title: str, series: Sequence[Series]) -> Element:
    """From zero on, so that a slope looks as steep as it is."""
    scale = 1e6 if any(one.unit == "bytes" for one in series) else 1.0
    top = max((max(one.values, default=0.0) for one in series), default=0.0) / scale or 1.0
    end = max((one.seconds[-1] for one in series if one.seconds), default=1.0) or 1.0
    wide, bottom = _WIDTH - _LEFT - _RIGHT, _TOP + _PLOT
    chart = tag("svg", viewBox=f"0 0 {_WIDTH} {bottom + 36:.0f}", role="img", aria_label=title)
    for n in range(_TICKS + 1):
        height = bottom - _PLOT * n / _TICKS
        chart.append(tag("line", class_="grid", x1=_LEFT, y1=height, x2=_WIDTH - _RIGHT, y2=height))
        chart.append(tag("text", f"{top * n / _TICKS:.3g}", x=_LEFT - 6, y=height + 4, text_anchor="end"))
        across = _LEFT + wide * n / _TICKS
        chart.append(tag("text", f"{end * n / _TICKS / 60:.3g}", x=across, y=bottom + 17, text_anchor="middle"))
    chart.append(tag("text", "minutes", x=_WIDTH - _RIGHT, y=bottom + 33, text_anchor="end"))
    for n, one in enumerate(series):
        points = [
            f"{_LEFT + wide * s / end:.1f} {bottom - _PLOT * v / scale / top:.1f}"
            for s, v in zip(one.seconds, one.values, strict=True)
        ]
        colour, dashes = _LINES[n % len(_LINES)]
        if points:
            drawn = f"M{' L'.join(points)}"
            chart.append(tag("path", class_="curve", d=drawn, style=f"stroke: {colour}", stroke_dasharray=dashes))
    return chart


def _table(report: Report) -> Element:
    about = (
        f"By least squares over the last two thirds, in % of the mean in 10 minutes; at most {SLOPE_MAX:g}. Growth of "
        f"less than {NOISE_BYTES // 1024} KiB in 10 minutes is a page here and there."
    )
    names = ("", "", "mean", "growth in 10 minutes", "slope")
    head = tag(
        "tr", *(tag("th", name, scope="col", class_="figure" if n > 1 else None) for n, name in enumerate(names))
    )
    rows = [_row(one) for one in sorted(report.samples.series, key=lambda one: -one.slope)]
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("section", tag("h2", "Slopes"), tag("p", about, class_="quiet"), tag("div", table, class_="wide"))


def _row(series: Series) -> Element:
    mark = "too steep" if series.too_steep else "by pages" if series.excused else "flat"
    _, values = series.last
    mean = sum(values) / len(values) if values else 0.0
    return tag(
        "tr",
        tag("td", tag("span", mark, class_=f"badge {'wrong' if series.too_steep else 'ok'}")),
        tag("td", tag("code", series.name)),
        tag("td", told(series, mean), class_="figure"),
        tag("td", told(series, series.growth), class_="figure"),
        tag("td", f"{series.slope:+.2f} %", class_="figure"),
    )


def told(series: Series, value: float) -> str:
    """A value in its unit."""
    return f"{value / 1024:,.0f} KiB" if series.unit == "bytes" else f"{value:.1f}"
