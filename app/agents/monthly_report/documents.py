"""Supporting documents: what may explain the figures, each with the exact text a report can cite.

A document's `sha256` is always the SHA-256 of its `text` in UTF-8, so anyone who has the text can check the citation.
Sources: a daily weather CSV (one document per airport, and one that sets the days of bad weather against the delays),
and the Markdown notes of a folder, byte by byte as they lie there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from app.agents.monthly_report.csv_file import (
    BadFile,
    Line,
    Month,
    decode,
    lines,
    open_regular,
    read_content,
    read_limited,
)
from app.agents.monthly_report.figures import DayCounts, Share

NOTE_SIZE_MAX_KB = 64
NOTES_COUNT_MAX = 20
HEAVY_RAIN_IN = Decimal("0.25")  # a day's sum, from here on
STRONG_GUST_MPH = Decimal(40)  # from here on
POOR_VISIBILITY_MI = Decimal(3)  # below this aircraft fly by instruments
BAD_WEATHER = (
    f"rain of at least {HEAVY_RAIN_IN} in, a gust of at least {STRONG_GUST_MPH} mph,"
    f" or visibility below {POOR_VISIBILITY_MI} mi"
)
WEATHER_COLUMNS = ("date", "origin", "precip_in", "gust_max_mph", "visibility_min_mi")

_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


class Document(BaseModel):
    """One citable text. `days` are the days (`YYYY-MM-DD`) it singles out, for a chart to mark; often none."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    sha256: str
    text: str
    source: str
    days: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeatherDay:
    """One airport's day: inches of rain, miles per hour, miles; None was not observed."""

    day: date
    airport: str
    rain_in: Decimal | None
    gust_mph: Decimal | None
    visibility_mi: Decimal | None

    def troubles(self) -> list[str]:
        """What was bad about the day by the thresholds above, in words; empty for a fair day."""
        found: list[str] = []
        if self.rain_in is not None and self.rain_in >= HEAVY_RAIN_IN:
            found.append(f"rain {self.rain_in} in")
        if self.gust_mph is not None and self.gust_mph >= STRONG_GUST_MPH:
            found.append(f"gust {self.gust_mph} mph")
        if self.visibility_mi is not None and self.visibility_mi < POOR_VISIBILITY_MI:
            found.append(f"visibility {self.visibility_mi} mi")
        return found


def find_documents(
    month: Month, *, weather: Path | None, notes: Path | None, days: Sequence[DayCounts] = ()
) -> list[Document]:
    """All documents for the month: weather from one CSV, notes from one folder; None leaves a source out.

    `days` are the month's daily figures (`Figures.days`), set against the weather. Reads files: call it in a thread.
    Raises BadFile for a source that is named and cannot be used.
    """
    found: list[Document] = []
    if weather is not None:
        found += weather_documents(weather.name, read_content(weather), month=month, days=days)
    if notes is not None:
        found += note_documents(notes)
    return found


def weather_documents(name: str, content: bytes, *, month: Month, days: Sequence[DayCounts] = ()) -> list[Document]:
    """The weather of the month: first how bad days coincide, then one document per airport, by its code.

    Empty when the file has no row in the month. Raises BadFile, as csv_file.py does.
    """
    observed = [day for day in _weather_days(name, content) if month.first <= day.day < month.next_first]
    if not observed:
        return []
    source = f"{name} (sha256 {hashlib.sha256(content).hexdigest()})"
    by_airport: dict[str, list[WeatherDay]] = {}
    for day in sorted(observed, key=lambda day: (day.airport, day.day)):
        by_airport.setdefault(day.airport, []).append(day)
    airports = [_airport(airport, its_days, month=month, source=source) for airport, its_days in by_airport.items()]
    return [_coincidence(by_airport, month=month, source=source, days=days), *airports]


def _weather_days(name: str, content: bytes) -> list[WeatherDay]:
    found: dict[tuple[date, str], WeatherDay] = {}
    for line in lines(name, content, columns=WEATHER_COLUMNS):
        day = WeatherDay(
            day=line.date("date"),
            airport=line.text("origin"),
            rain_in=_measured(line, "precip_in"),
            gust_mph=_measured(line, "gust_max_mph"),
            visibility_mi=_measured(line, "visibility_min_mi"),
        )
        if (day.day, day.airport) in found:
            raise line.fault("date", f"a second row for {day.day} {day.airport}", "keep one row per date and origin")
        found[day.day, day.airport] = day
    return list(found.values())


def _measured(line: Line, column: str) -> Decimal | None:
    cell = line.cells[column]
    if cell and not _DECIMAL.fullmatch(cell):
        advice = "write a decimal number of zero or more, or leave the cell empty for 'not observed'"
        raise line.fault(column, f"{cell[:40]!r} is not a measurement", advice)
    return Decimal(cell) if cell else None


def _airport(airport: str, days: Sequence[WeatherDay], *, month: Month, source: str) -> Document:
    rain = [day.rain_in for day in days if day.rain_in is not None]
    gusts = [(day.gust_mph, day.day) for day in days if day.gust_mph is not None]
    views = [(day.visibility_mi, day.day) for day in days if day.visibility_mi is not None]
    text = [f"Weather at {airport} in {month}: {len(days)} days observed."]
    if rain:
        heavy = sum(inches >= HEAVY_RAIN_IN for inches in rain)
        text.append(f"Rain: {sum(rain)} in over {len(rain)} days; at least {HEAVY_RAIN_IN} in on {heavy} of them.")
    if gusts:
        mph, day = max(gusts, key=lambda gust: (gust[0], -gust[1].toordinal()))
        text.append(f"Strongest gust: {mph} mph on {day} (gusts were observed on {len(gusts)} days).")
    if views:
        miles, day = min(views)
        text.append(f"Worst visibility: {miles} mi on {day}.")
    bad = [(day.day, day.troubles()) for day in days if day.troubles()]
    text.append(f"Bad-weather days ({BAD_WEATHER}): {len(bad)}.")
    text += [f"- {day}: {', '.join(troubles)}" for day, troubles in bad]
    return _document(
        f"weather-{airport}-{month}", f"Weather at {airport}, {month}", "\n".join(text) + "\n", source=source,
        days=(day for day, _ in bad),
    )  # fmt: skip


def _coincidence(
    by_airport: dict[str, list[WeatherDay]], *, month: Month, source: str, days: Sequence[DayCounts]
) -> Document:
    bad: dict[date, list[str]] = {}
    for airport, its_days in by_airport.items():
        for day in its_days:
            if day.troubles():
                bad.setdefault(day.day, []).append(airport)
    observed = {day.day for its_days in by_airport.values() for day in its_days}
    everywhere = sum(len(airports) == len(by_airport) for airports in bad.values())
    text = [
        f"Bad weather in {month} at {', '.join(by_airport)} ({BAD_WEATHER}).",
        f"Days with bad weather at one airport or more: {len(bad)} of {len(observed)}; at all of them: {everywhere}.",
    ]
    if days:
        text += _delays(days, {str(day) for day in bad}, {str(day) for day in observed})
    text += ["", "The days of bad weather:", *(f"- {day}: {', '.join(bad[day])}" for day in sorted(bad))]
    return _document(
        f"weather-{month}", f"Bad weather and delays, {month}", "\n".join(text) + "\n", source=source, days=sorted(bad)
    )


def _delays(days: Sequence[DayCounts], bad: set[str], observed: set[str]) -> list[str]:
    """The figures of the bad days and of the others observed: they say what coincides, not what causes."""
    text = ["Departures, all airports together (at the same time does not by itself mean because of it):"]
    for label, group in (
        ("bad-weather days", [counts for counts in days if counts.day in bad]),
        ("other days", [counts for counts in days if counts.day in observed - bad]),
    ):
        flights = sum(counts.flights for counts in group)
        cancelled = Share(part=sum(counts.cancelled for counts in group), whole=flights)
        delayed = Share(part=sum(counts.delayed_departures for counts in group), whole=flights - cancelled.part)
        text.append(
            f"- {len(group)} {label}: {_share(delayed)} departed flights left more than 15 minutes late,"
            f" {_share(cancelled)} scheduled flights were cancelled."
        )
    return text


def _share(share: Share) -> str:
    percent = "" if share.percent is None else f" ({share.percent:.2f}%)"
    return f"{share.part:,} of {share.whole:,}{percent}"


def note_documents(folder: Path) -> list[Document]:
    """The Markdown notes (`*.md`, not hidden) that lie directly in a folder, by file name.

    Raises BadFile for a folder that cannot be read, more than NOTES_COUNT_MAX notes, and a note that is a link or no
    regular file, is larger than NOTE_SIZE_MAX_KB, or is not UTF-8 text. Nothing outside the folder is ever read.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix == ".md" and path.name[0] != ".")
    except OSError as error:
        reason = (error.strerror or "it cannot be listed").lower()
        raise BadFile(f"The folder of notes {folder} cannot be read: {reason}; check its path.") from error
    if len(names) > NOTES_COUNT_MAX:
        raise BadFile(
            f"The folder of notes {folder} has {len(names)} Markdown files; leave at most {NOTES_COUNT_MAX} in it."
        )
    return [_note(folder, name) for name in names]


def _note(folder: Path, name: str) -> Document:
    shown = os.fsencode(name).decode(errors="replace")
    content = read_limited(
        folder / name, size_max_bytes=NOTE_SIZE_MAX_KB * 1000, limit=f"{NOTE_SIZE_MAX_KB} kB", opener=_open_inside
    )
    text = decode(shown, content)
    slug = re.sub(r"[^a-z0-9]+", "-", shown.removesuffix(".md").lower()).strip("-")[:24].rstrip("-")
    tag = hashlib.sha256(os.fsencode(name)).hexdigest()[:6]  # keeps apart names that look alike, whatever else is there
    document_id = "-".join(part for part in ("note", slug, tag) if part)
    headings = (line.strip("#").strip() for line in text.removeprefix("\ufeff").splitlines() if line.startswith("#"))
    title = next((heading for heading in headings if heading), shown)
    return _document(document_id, title[:120], text, source=shown)


def _open_inside(path: str, flags: int) -> int:
    """Opens a regular file, and follows no link."""
    try:
        return open_regular(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, put the file itself into the folder") from error
        raise


def _document(document_id: str, title: str, text: str, *, source: str, days: Iterable[date] = ()) -> Document:
    return Document(
        id=document_id,
        title=title,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
        source=source,
        days=tuple(str(day) for day in days),
    )
