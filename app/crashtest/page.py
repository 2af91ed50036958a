"""A report as one HTML page that stands alone: no script, nothing fetched, the same bytes for the same report."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from app.crashtest import charts
from app.crashtest.faults import show
from app.crashtest.markup import Child, Element, html, tag
from app.crashtest.outcome import Outcome, Strike
from app.crashtest.report import TRACE_SHOWN, WORDS, ControlResult, Report

FAILED_SHOWN_MAX = 200
_STYLE = Path(__file__).with_name("page.css")
_MEANINGS = MappingProxyType(
    {
        "recovered": "as the undisturbed run",
        "on the desk": "sent and never answered, where nobody can ask or repeat: a person is asked",
        "residual": "a process stopped between its last check and its send woke and sent; the duplicate shows",
        "failed": "with a finding",
    }
)


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
        tag("title", f"{'All is well' if report.ok else 'Something is wrong'}: crash test of {report.agent}"),
        tag("style", _STYLE.read_text(encoding="utf-8")),
    )
    main = tag(
        "main",
        _heading(report),
        _figures(report),
        *_failures(report),
        *_missed(report),
        _charts(report),
        *_controls(report),
        _points(report),
        _foot(report),
    )
    return html(tag("html", head, tag("body", main), lang="en"))


def sentence(report: Report) -> str:
    """What was tested and whether all is well."""
    counted, verdicts = len(report.counted), report.verdicts()
    did = f"{_many(counted, 'case')} struck an unfinished run of {report.agent}"
    if report.ok:
        came_to = ", ".join(f"{verdicts[word]} {word}" for word in WORDS if verdicts[word]) or "nothing to recover"
        noticed = len(report.controls)
        controls = f"; {_many(noticed, 'protection')} taken away, and each time it was noticed" if noticed else ""
        return f"{did}, and all is well: {came_to}{controls}."
    wrong = [f"{_many(len(report.failed), 'case')} failed"] if report.failed else []
    blind = [control for control in report.controls if not control.ok]
    wrong += [f"{_many(len(blind), 'negative control')} did not come out as it must"] if blind else []
    wrong += [f"{_many(len(report.missed), 'point')} never struck"] if report.missed else []
    wrong += [f"{report.wanted} cases were to count"] if counted < report.wanted else []
    return f"{did}, and something is wrong: {'; '.join(wrong)}."


def _heading(report: Report) -> Element:
    badge = tag("p", "all is well" if report.ok else "something is wrong", class_="badge")
    about = "Workers were killed, stopped and cut off at the points they pass. Each run was driven on by others, and "
    return tag(
        "header",
        badge,
        tag("h1", sentence(report)),
        tag("p", f"{about}compared with an undisturbed one.", class_="quiet"),
        class_="ok" if report.ok else "wrong",
    )


def _figures(report: Report) -> Element:
    told, verdicts = report.as_json(), report.verdicts()
    tiles = [
        _tile("cases that count", _data(told["cases"], "cases"), f"{report.wanted} asked for" if report.wanted else ""),
        *(_tile(word, _data(verdicts[word], f"verdict-{charts.style(word)}"), _MEANINGS[word], word) for word in WORDS),
        _tile("processes died", _data(told["processes_died"], "processes_died"), "by SIGKILL"),
        _tile(
            "processes stopped", _data(told["processes_stopped"], "processes_stopped"), "until others had taken over"
        ),
        _tile("steps repeated", _data(told["steps_repeated"], "steps_repeated"), "in flight when struck"),
        *_recovery_tiles(report),
        _tile("cases a minute", _data(told["cases_a_minute"], "cases_a_minute", ".1f")),
        _tile("duration", _data(told["seconds"], "seconds", ".0f", " s")),
        _tile("seed", _data(told["seed"], "seed")),
    ]
    left_out = told["cases_that_struck_nothing"]
    uncounted = "more, whose faults struck no unfinished run, not counted."
    note = tag("p", _data(left_out, "cases_that_struck_nothing"), f" {uncounted}", class_="quiet")
    return tag("section", tag("h2", "Figures"), tag("div", *tiles, class_="tiles"), note if left_out else None)


def _recovery_tiles(report: Report) -> Iterator[Element]:
    summary = report.recovery_s()
    if summary is not None:
        lease = f"the lease is {report.lease_s:.1f} s"
        yield _tile("time to recover, median", _data(summary[0], "recovery-median", ".2f", " s"), lease)
        yield _tile("time to recover, p99", _data(summary[1], "recovery-p99", ".2f", " s"), lease)


def _tile(name: str, value: Child, note: str = "", word: str = "") -> Element:
    key = tag("span", class_=f"key {charts.style(word)}") if word else None
    label = tag("span", key, name, class_="name")
    return tag("div", label, tag("b", value), tag("small", note) if note else None)


def _data(value: float, name: str, as_: str = "", unit: str = "") -> Element:
    """A number of the report's JSON, as it is there and as a person reads it."""
    return tag("data", f"{value:{as_}}{unit}", value=repr(value), class_=name)


def _charts(report: Report) -> Element:
    keys = [tag("span", tag("span", class_=f"key {charts.style(word)}"), word) for word in WORDS]
    bars = tag("figure", tag("figcaption", "Cases by kind of fault"), charts.verdicts(report),
               tag("p", *keys, class_="keys"))  # fmt: skip
    curve = charts.recovery(report)
    nothing = tag("p", "No run had anything to recover from.", class_="quiet")
    summary = report.recovery_s()
    circles = f"The circles: median {summary[0]:.2f} s, p99 {summary[1]:.2f} s." if summary else None
    times = tag("figure", tag("figcaption", "Time to recover, cumulative"), nothing if curve is None else curve,
                tag("p", circles, class_="keys") if circles else None)  # fmt: skip
    return tag("section", tag("h2", "Charts"), tag("div", bars, times, class_="charts"))


def _points(report: Report) -> Element:
    rows = [
        (
            name.partition(" ")[0],
            tag("code", name.partition(" ")[2]),
            _count(strikes),
            *(_count(came_to.get(word, 0)) for word in WORDS),
        )
        for name, strikes, came_to in report.by_point()
    ]
    table = _table(("fault", "point", "strikes", *WORDS), rows, figures_from=2)
    return tag("section", tag("h2", "By fault and point"), table)


def _count(number: int) -> Element:
    return tag("span", number, class_=None if number else "none")


def _table(names: Sequence[str], rows: Sequence[Sequence[Child]], *, figures_from: int | None = None) -> Element:
    """It scrolls by itself where it is wider than the page. `figures_from`: the first column of figures."""

    def cells(of: Sequence[Child], kind: str, **more: object) -> Iterator[Element]:
        for n, cell in enumerate(of):
            figure = figures_from is not None and n >= figures_from
            yield tag(kind, cell, class_="figure" if figure else None, **more)

    head = tag("tr", *cells(names, "th", scope="col"))
    body = [tag("tr", *cells(row, "td")) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="wide")


def _controls(report: Report) -> Iterator[Element]:
    if report.controls:
        about = (
            "Each takes one protection away inside the workers. The kit must notice, and find nothing once it is back."
        )
        names = ("", "without", "must find", "found", "found when restored", "faults")
        table = _table(names, [_control(control) for control in report.controls])
        yield tag("section", tag("h2", "Negative controls"), tag("p", about, class_="quiet"), table)


def _control(control: ControlResult) -> Sequence[Child]:
    noticed = "noticed" if control.expected in control.found else "NOT NOTICED"
    mark = tag(
        "span", "NOT RESTORED" if control.restored else noticed, class_=f"badge {'ok' if control.ok else 'wrong'}"
    )
    found, restored = (", ".join(kinds) or "nothing" for kinds in (control.found, control.restored))
    return (mark, control.name, control.expected, found, restored, _faults(control.seed))


def _missed(report: Report) -> Iterator[Element]:
    if report.missed:
        points = [tag("li", tag("code", point)) for point in report.missed]
        about = "These had to be struck, and no fault struck an unfinished run there."
        yield tag("section", tag("h2", "Points never struck"), tag("p", about), tag("ul", *points), class_="wrong")


def _failures(report: Report) -> Iterator[Element]:
    if report.failed:
        shown = report.failed[:FAILED_SHOWN_MAX]
        more = len(report.failed) - len(shown)
        rest = tag("p", f"{more} more failed; the JSON report has them all.") if more else None
        title = tag("h2", "Failed: ", _data(len(report.failed), "failed"))
        yield tag("section", title, *(_failure(outcome) for outcome in shown), rest, class_="wrong")


def _failure(outcome: Outcome) -> Element:
    fewer = None
    if outcome.shrunk is not None and len(outcome.shrunk) < len(outcome.case.faults):
        fewer = tag("p", "these are enough: ", _faults(show(outcome.shrunk)))
    passed = [tag("li", tag("code", point)) for point in outcome.trace[-TRACE_SHOWN:]]
    trace = tag("details", tag("summary", "what the last worker passed"), tag("ol", *passed)) if passed else None
    return tag(
        "article",
        tag("h3", _faults(outcome.seed)),
        tag("p", f"{outcome.case.name}, run ", tag("code", outcome.run_id), ". Play it again with ",
            _faults(f"--replay '{outcome.seed}'")),
        fewer,
        tag("ul", *(tag("li", tag("b", found.kind), f": {found.what}") for found in outcome.findings)),
        tag("ul", *(tag("li", *_struck(strike)) for strike in outcome.strikes), class_="quiet"),
        trace,
    )  # fmt: skip


def _faults(seed: str) -> Element:
    """The words that play a case again; a line may end between two faults."""
    first, *others = seed.split(",")
    parts: list[Child] = [first]
    for other in others:
        parts += [",", tag("wbr"), other]
    return tag("code", *parts)


def _struck(strike: Strike) -> Sequence[Child]:
    recovered = "never" if strike.recovered_s is None else f"after {strike.recovered_s:.2f} s"
    where = tag("code", strike.point)
    return (f"{strike.fault.kind} of process {strike.pid} at ", where, f"; something happened again {recovered}")


def _foot(report: Report) -> Element:
    exits = ", ".join(f"{count} with {code}" for code, count in sorted(report.exits().items()))
    ended = f"Workers that ended by themselves (75: the lease was lost): {exits}. " if exits else ""
    jitter = f"This machine was late by up to {1000 * report.jitter_s:.0f} ms."
    return tag(
        "footer", tag("p", f"{ended}{jitter} Written by surefoot crashtest, seed {report.seed}.", class_="quiet")
    )


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
