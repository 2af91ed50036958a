"""The charts of a report's page, as SVG: as wide as a phone at their own size, and in the colours of the page."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from app.crashtest.faults import KINDS
from app.crashtest.markup import Element, tag
from app.crashtest.report import WORDS, Report

SEVERAL = "several kinds"
_WIDTH = 360
_LABELS = 92.0  # how wide the names at the left are
_BAR, _GAP = 16.0, 10.0
_TOTAL = 40.0  # room for the number at the right
_TOP, _PLOT, _LEFT, _RIGHT = 22.0, 150.0, 40.0, 12.0
_TICKS_MAX = 6


def by_kind(report: Report) -> list[tuple[str, Counter[str]]]:
    """What the cases that count came to, by the kind of what struck them; each case is there once."""
    found: dict[str, Counter[str]] = {}
    for outcome in report.counted:
        kinds = {strike.fault.kind for strike in outcome.strikes if strike.unfinished}
        name = kinds.pop() if len(kinds) == 1 else SEVERAL
        found.setdefault(name, Counter())[outcome.verdict.word] += 1
    return [(name, found[name]) for name in (*KINDS, SEVERAL) if name in found]


def style(word: str) -> str:
    """The class of a verdict."""
    return word.replace(" ", "-")


def verdicts(report: Report) -> Element:
    """Stacked bars: the cases by kind of fault and verdict."""
    rows = by_kind(report)
    most = max((came_to.total() for _, came_to in rows), default=1)
    scale = (_WIDTH - _LABELS - _TOTAL) / most
    chart = _chart(len(rows) * (_BAR + _GAP) + 4, "Cases by kind of fault and verdict")
    for n, (name, came_to) in enumerate(rows):
        top = n * (_BAR + _GAP) + 4
        chart.append(_text(name, _LABELS - 8, top + _BAR - 4, anchor="end"))
        left = _LABELS
        for word in WORDS:
            if count := came_to[word]:
                title = tag("title", f"{name}: {count} {word}")
                wide = max(count * scale, 1.0)  # a single failure among a thousand is still to be seen
                chart.append(tag("rect", title, class_=style(word), x=left, y=top, width=wide, height=_BAR))
                left += wide
        chart.append(_text(str(came_to.total()), left + 6, top + _BAR - 4, class_="number"))
    return chart


def recovery(report: Report) -> Element | None:
    """How many of the strikes had been recovered from by when, with the lease; None when none had to be."""
    times = sorted(strike.recovered_s for strike in report.strikes if strike.recovered_s is not None)
    summary = report.recovery_s()
    if summary is None:
        return None
    right = max(times[-1], report.lease_s) * 1.08
    scale = (_WIDTH - _LEFT - _RIGHT) / right
    bottom = _TOP + _PLOT

    def x(seconds: float) -> float:
        return _LEFT + seconds * scale

    def y(share: float) -> float:
        return bottom - share * _PLOT

    chart = _chart(bottom + 36, "Time to recover, cumulative")
    for percent in (0, 25, 50, 75, 100):
        height = y(percent / 100)
        chart.append(_line("grid", _LEFT, height, _WIDTH - _RIGHT, height))
        chart.append(_text(f"{percent} %", _LEFT - 6, height + 4, anchor="end"))
    for second in _ticks(right):
        chart.append(_line("grid", x(second), bottom, x(second), bottom + 4))
        chart.append(_text(f"{second:g}", x(second), bottom + 17, anchor="middle"))
    chart.append(_text("seconds from a strike to the next thing that happened", x(right), bottom + 33, anchor="end"))
    chart.append(_line("lease", x(report.lease_s), _TOP - 4, x(report.lease_s), bottom))
    late = x(report.lease_s) > _WIDTH / 2
    chart.append(_text(f"lease {report.lease_s:.1f} s", x(report.lease_s), 12, anchor="end" if late else "start"))
    chart.append(tag("path", class_="curve", d=_curve(times, x(0), y(0), scale)))
    for name, seconds, share in (("median", summary[0], 0.5), ("p99", summary[1], 0.99)):
        title = tag("title", f"{name}: {seconds:.2f} s")
        chart.append(tag("circle", title, class_="dot", cx=x(seconds), cy=y(share), r=3.5))
    return chart


def _curve(times: Sequence[float], left: float, bottom: float, scale: float) -> str:
    """A step up at each of the times, all of them together as high as the plot; those that nobody can tell apart are
    one step.
    """
    heights = {f"{left + seconds * scale:.1f}": n / len(times) for n, seconds in enumerate(times, start=1)}
    steps = [f"H{across}V{bottom - height * _PLOT:.1f}" for across, height in heights.items()]
    return f"M{left:.1f} {bottom:.1f}{''.join(steps)}H{_WIDTH - _RIGHT:.1f}"


def _ticks(right: float) -> Iterator[float]:
    """Round numbers of seconds from 0 on."""
    rough = right / _TICKS_MAX
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    for n in range(int(right / step) + 1):
        yield round(n * step, 6)


def _chart(height: float, label: str) -> Element:
    return tag("svg", viewBox=f"0 0 {_WIDTH} {height:.0f}", role="img", aria_label=label)


def _text(words: str, x: float, y: float, *, anchor: str | None = None, class_: str | None = None) -> Element:
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Element:
    return tag("line", class_=class_, x1=x1, y1=y1, x2=x2, y2=y2)
