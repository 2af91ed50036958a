"""The report as one self-contained Markdown text, its charts inside as SVG images.

Every number comes from `Figures` and every quotation from a `Document`; the only free text is the commentary, which has
a section of its own and is taken over verbatim. The same input gives the same bytes: no clock, no random ids.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from app.agents.monthly_report.documents import Document
from app.agents.monthly_report.figures import Change, Counts, Figures, Group, Measure, Share

QUOTE_LENGTH_MAX_CHARS = 1200
CHART_SIZE_IN = (9.0, 6.4)

NAMES: Mapping[Measure, str] = MappingProxyType(
    {
        "flights": "Flights",
        "cancelled": "Cancelled",
        "delayed_departures": "Delayed departures",
        "late_arrivals": "Late arrivals",
    }
)
NOTHING = "n/a"


def render(figures: Figures, documents: Sequence[Document], *, commentary: str = "") -> str:
    """The report in Markdown, UTF-8 text that ends with a newline. Works for about a second: call it in a thread."""
    image = base64.b64encode(chart(figures, documents).encode()).decode()
    alt = f"Shares by month up to {figures.month.month}, and delayed departures by day in {figures.month.month}"
    sections = [
        f"# Monthly report, {figures.month.month}",
        *_headline(figures),
        f"![{alt}](data:image/svg+xml;base64,{image})",
        "## Against the earlier months",
        _months(figures),
        "## Largest movers",
        *_movers(figures),
        "## By airport",
        _groups(figures.airports),
        "## By airline",
        _groups(figures.airlines),
        "## What explains it",
        *_explanations(documents),
        *(["## Commentary", commentary] if commentary.strip() else []),
        "## Where the figures come from",
        _provenance(figures),
    ]
    return "\n\n".join(sections) + "\n"


def _headline(figures: Figures) -> Iterable[str]:
    month, average, change = figures.month, figures.average, figures.change
    earlier = average.total if average else None
    against = f"Average of {average.months} earlier months" if average else "Earlier months"
    rows = [("Flights", f"{month.flights:,}", _mean(figures, "flights"), _signed(change.flights_percent, "%"))]
    shares: tuple[tuple[Measure, Share, Share | None, float | None], ...] = (
        ("cancelled", month.cancellation_rate, earlier and earlier.cancellation_rate, change.cancellation_points),
        ("delayed_departures", month.delayed_rate, earlier and earlier.delayed_rate, change.delayed_points),
        ("late_arrivals", month.late_rate, earlier and earlier.late_rate, change.late_points),
    )
    for measure, share, before, points in shares:
        mean = f"{_mean(figures, measure)} ({_percent(before)})" if before else NOTHING
        this = f"{month.of(measure):,} ({_percent(share)})"
        rows.append((NAMES[measure], this, mean, _signed(points, " points")))
    yield (
        f"In {month.month} there were **{month.flights:,} flights**. **{month.cancelled:,}** were cancelled,"
        f" **{month.delayed_departures:,}** departed and **{month.late_arrivals:,}** arrived more than 15 minutes late."
    )
    yield _table(("", month.month, against, "Change"), rows)


def _mean(figures: Figures, measure: Measure) -> str:
    mean = figures.average.mean(measure) if figures.average else None
    return NOTHING if mean is None else f"{mean:,.1f}"


def _months(figures: Figures) -> str:
    titles = ["Month", "Rows", "Days", "Flights", "Cancelled", "Rate", "Delayed", "Share", "Late", "Share", "Delay"]
    rows = [
        (
            counts.month, f"{counts.rows:,}", f"{counts.days}", f"{counts.flights:,}",
            f"{counts.cancelled:,}", _percent(counts.cancellation_rate),
            f"{counts.delayed_departures:,}", _percent(counts.delayed_rate),
            f"{counts.late_arrivals:,}", _percent(counts.late_rate),
            NOTHING if counts.mean_departure_delay_min is None else f"{counts.mean_departure_delay_min:.1f} min",
        )
        for counts in (*figures.earlier, figures.month)
    ]  # fmt: skip
    return _table(titles, rows)


def _movers(figures: Figures) -> Iterable[str]:
    if not figures.movers:
        yield "The data set has no earlier month to compare with, or nothing moved."
        return
    yield "Airlines at an airport whose count moved farthest from their average of the earlier months."
    titles = ("Measure", "", "Airport", "Airline", figures.month.month, "Average", "Moved by", "Rows")
    yield _table(
        titles,
        [
            (
                NAMES[mover.measure], f"{mover.rank}", mover.origin, f"{mover.airline} ({mover.carrier})",
                f"{mover.in_month:,}", NOTHING if mover.average is None else f"{mover.average:,.1f}",
                _signed(mover.moved_by), f"{mover.rows:,}",
            )
            for mover in figures.movers
        ],
    )  # fmt: skip


def _groups(groups: Sequence[Group]) -> str:
    titles = ["Code", "Name", "Rows", "Flights", "Change", "Cancelled", "Change", "Delayed", "Change", "Late", "Change"]
    rows: list[tuple[str, ...]] = []
    for group in sorted(groups, key=lambda group: (-group.in_month.flights, group.code)):
        counts, change = group.in_month, group.change
        rows.append(
            (
                group.code, group.name, f"{counts.rows:,}", f"{counts.flights:,}", _signed(change.flights_percent, "%"),
                *_rates(counts, change),
            )
        )  # fmt: skip
    return _table(titles, rows)


def _rates(counts: Counts, change: Change) -> Iterable[str]:
    for count, share, points in (
        (counts.cancelled, counts.cancellation_rate, change.cancellation_points),
        (counts.delayed_departures, counts.delayed_rate, change.delayed_points),
        (counts.late_arrivals, counts.late_rate, change.late_points),
    ):
        yield f"{count:,} ({_percent(share)})"
        yield _signed(points, " points")


def _explanations(documents: Sequence[Document]) -> Iterable[str]:
    if not documents:
        yield "No supporting documents were found for this month."
    for document in documents:
        quoted = document.text[:QUOTE_LENGTH_MAX_CHARS].rstrip()
        if (left := len(document.text.rstrip()) - len(quoted)) > 0:
            quoted += f"\n\n[{left:,} more characters]"
        yield f"### {_plain(document.title)}"
        yield f"Document **{_plain(document.id)}**, SHA-256 `{document.sha256}`, from {_plain(document.source)}:"
        yield "\n".join(f"> {line}".rstrip() for line in quoted.splitlines())


def _provenance(figures: Figures) -> str:
    used = figures.month.rows + sum(counts.rows for counts in figures.earlier)
    return "\n".join(
        (
            f"- Data set: SHA-256 `{figures.data_set}`, {figures.rows_in_data_set:,} rows.",
            f"- {figures.month.month} rests on {figures.month.rows:,} rows of {figures.month.days} days;"
            f" with the {len(figures.earlier)} earlier months the report rests on {used:,} rows.",
            "- A change in flights is against the mean of the earlier months. A change in a rate, in percentage points,"
            " is against the rate of all earlier months together.",
            "- Delayed and late mean more than 15 minutes. The delayed share is of the flights that departed, the late"
            " share of the arrivals on record. Delay is the mean of the departed flights, early ones below zero.",
        )
    )


def chart(figures: Figures, documents: Sequence[Document]) -> str:
    """An SVG document: the shares by month, and the delayed departures of each day with the documents' days marked.

    Drawn through matplotlib's object interface, which shares no figure state between threads.
    """
    figure = _canvas()
    above, below = figure.subplots(2, 1)
    _draw_months(above, figures)
    _draw_days(below, figures, {day for document in documents for day in document.days})
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def _canvas() -> Any:
    """An empty matplotlib Figure, as Any: the library's own stubs leave the keyword arguments of drawing untyped."""
    import matplotlib  # here, so that a worker starts without it
    from matplotlib.figure import Figure

    # Always the same two values and never put back: what another thread draws meanwhile cannot change ours.
    matplotlib.rcParams.update({"svg.hashsalt": "monthly-report", "svg.fonttype": "none"})
    return Figure(figsize=CHART_SIZE_IN, layout="constrained")


def _draw_months(axes: Any, figures: Figures) -> None:
    months = [*figures.earlier, figures.month]
    axes.margins(y=0.25)  # room for the legend
    places = list(range(len(months)))
    for name, marker, shares in (
        ("cancelled", "o", [counts.cancellation_rate.percent for counts in months]),
        ("departed late", "s", [counts.delayed_rate.percent for counts in months]),
        ("arrived late", "^", [counts.late_rate.percent for counts in months]),
    ):
        axes.plot(places, [float("nan") if share is None else share for share in shares], marker=marker, label=name)
    axes.axvspan(places[-1] - 0.3, places[-1] + 0.3, color="0.9", zorder=0)
    step = len(months) // 12 + 1
    axes.set_xticks(places[::-step], [counts.month for counts in months[::-step]])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("percent")
    axes.set_title("Shares by month")
    axes.legend(loc="upper left", ncols=3)


def _draw_days(axes: Any, figures: Figures, marked: set[str]) -> None:
    axes.margins(y=0.25)  # room for the legend
    for colour, name, days in (
        ("tab:blue", "delayed departures", [counts for counts in figures.days if counts.day not in marked]),
        ("tab:red", "on a day the documents name", [counts for counts in figures.days if counts.day in marked]),
    ):
        if days:
            axes.bar(
                [int(counts.day[-2:]) for counts in days],
                [counts.delayed_departures for counts in days],
                color=colour,
                label=name,
            )
    axes.set_xlabel(f"day of {figures.month.month}")
    axes.set_ylabel("flights")
    axes.set_title("Departures more than 15 minutes late")
    axes.legend(loc="upper left", ncols=3)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text as text: on one line, and nothing in it is Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|~&])", r"\\\1", " ".join(text.split()))


def _percent(share: Share) -> str:
    return NOTHING if share.percent is None else f"{share.percent:.2f}%"


def _signed(number: float | None, unit: str = "") -> str:
    if number is None:
        return NOTHING
    digits = 2 if unit else 1
    return f"{number:+,.{digits}f}{unit}"
