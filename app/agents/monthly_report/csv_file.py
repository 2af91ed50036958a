"""The daily-figures file: bytes in, checked rows out. Nothing here touches a database or the network.

Every fault is a `BadFile` (or `BadMonth`): one sentence with the file's name, the line (counted from 1, the header is
line 1), the column where there is one, and what to do.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

FILE_SIZE_MAX_MB = 20
TEXT_LENGTH_MAX_CHARS = 100
NUMBER_LENGTH_MAX_DIGITS = 12  # the sum of every row of the largest file still fits Postgres' bigint

COLUMNS = (
    "date", "origin", "carrier", "airline", "flights", "cancelled", "departure_delay_min",
    "delayed_departures", "arrivals", "late_arrivals", "miles",
)  # fmt: skip
PARTS = (("cancelled", "flights"), ("delayed_departures", "flights"), ("late_arrivals", "arrivals"))

_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")

Opener = Callable[[str, int], int]


class BadFile(ValueError):
    """An input file cannot be used as it is. Not worth a retry: the message tells what to change."""


class BadMonth(ValueError):
    """The month asked for is not one. Not worth a retry."""


@dataclass(frozen=True, slots=True)
class DailyFigures:
    """One day of one airline at one airport. Counts are flights; `departure_delay_min` may be below zero."""

    date: date
    origin: str
    carrier: str
    airline: str
    flights: int
    cancelled: int
    departure_delay_min: int
    delayed_departures: int
    arrivals: int
    late_arrivals: int
    miles: int


@dataclass(frozen=True, slots=True)
class DailyFile:
    """A checked file: its name, the SHA-256 of its bytes (64 hex digits), and its rows in the file's order."""

    name: str
    sha256: str
    rows: tuple[DailyFigures, ...]


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month as the half-open range `first <= day < next_first`."""

    first: date
    next_first: date

    def __str__(self) -> str:
        return f"{self.first:%Y-%m}"


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a CSV file: where it stands, and its cells by column, stripped of blanks around them."""

    file: str
    number: int
    cells: Mapping[str, str]

    def fault(self, column: str, what: str, advice: str) -> BadFile:
        """The error for this line: `what` is wrong in `column`, and `advice` is what to do."""
        return BadFile(f"{self.file}, line {self.number}, column '{column}': {what}; {advice}.")

    def text(self, column: str) -> str:
        """A name or code: printable, not empty, at most `TEXT_LENGTH_MAX_CHARS`."""
        cell = self.cells[column]
        if not cell:
            raise self.fault(column, "the cell is empty", "fill it in or remove the line")
        if len(cell) > TEXT_LENGTH_MAX_CHARS:
            raise self.fault(
                column, f"{len(cell)} characters", f"shorten it to at most {TEXT_LENGTH_MAX_CHARS} characters"
            )
        if not cell.isprintable():
            raise self.fault(column, f"{_shown(cell)} has control characters in it", "write plain text on one line")
        return cell

    def date(self, column: str) -> date:
        """A calendar day as `YYYY-MM-DD`, and nothing else that ISO 8601 would allow."""
        cell = self.cells[column]
        try:
            if not _DATE.fullmatch(cell):
                raise ValueError
            return date.fromisoformat(cell)
        except ValueError:
            raise self.fault(column, f"{_shown(cell)} is not a date", "write it as YYYY-MM-DD") from None

    def whole_number(self, column: str, *, negative: bool = False) -> int:
        """An integer in plain digits; below zero only where `negative` says that this column may be."""
        cell = self.cells[column]
        if not _WHOLE_NUMBER.fullmatch(cell):
            raise self.fault(
                column, f"{_shown(cell)} is not a whole number", "write digits only, without separators or decimals"
            )
        if len(cell.lstrip("-")) > NUMBER_LENGTH_MAX_DIGITS:
            raise self.fault(column, f"{_shown(cell)} is too large", f"write at most {NUMBER_LENGTH_MAX_DIGITS} digits")
        number = int(cell)
        if number < 0 and not negative:
            raise self.fault(column, f"{number} is negative", "write a count of zero or more")
        return number


def parse_daily_figures(name: str, content: bytes) -> DailyFile:
    """Checks the bytes of a daily-figures CSV and returns its rows; `name` is only used in messages.

    Raises BadFile for the first fault from the top. Columns beyond `COLUMNS` are ignored; blank lines are skipped.
    """
    rows: list[DailyFigures] = []
    seen: dict[tuple[date, str, str], int] = {}
    for line in lines(name, content, columns=COLUMNS):
        row = _daily_figures(line)
        key = (row.date, row.origin, row.carrier)
        first = seen.setdefault(key, line.number)
        if first != line.number:
            what = f"{row.date} {row.origin} {row.carrier} stands on line {first} already"
            raise line.fault("date", what, "keep one row per date, origin and carrier")
        rows.append(row)
    return DailyFile(name=name, sha256=hashlib.sha256(content).hexdigest(), rows=tuple(rows))


def _daily_figures(line: Line) -> DailyFigures:
    row = DailyFigures(
        date=line.date("date"),
        origin=line.text("origin"),
        carrier=line.text("carrier"),
        airline=line.text("airline"),
        flights=line.whole_number("flights"),
        cancelled=line.whole_number("cancelled"),
        departure_delay_min=line.whole_number("departure_delay_min", negative=True),
        delayed_departures=line.whole_number("delayed_departures"),
        arrivals=line.whole_number("arrivals"),
        late_arrivals=line.whole_number("late_arrivals"),
        miles=line.whole_number("miles"),
    )
    for part, whole in PARTS:
        counted, out_of = line.whole_number(part), line.whole_number(whole)
        if counted > out_of:
            raise line.fault(part, f"{counted} is more than the {out_of} in '{whole}'", "correct one of the two")
    return row


def open_regular(path: str, flags: int) -> int:
    """Opens a regular file and nothing else: no pipe can keep us waiting."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise (
            IsADirectoryError(errno.EISDIR, "is a directory")
            if stat.S_ISDIR(mode)
            else OSError("it is not a regular file")
        )
    return handle


def read_content(path: Path) -> bytes:
    """The bytes of an input file, never more than the size limit. Raises BadFile when it is missing or too large."""
    return read_limited(path, size_max_bytes=FILE_SIZE_MAX_MB * 1_000_000, limit=f"{FILE_SIZE_MAX_MB} MB")


def read_limited(path: Path, *, size_max_bytes: int, limit: str, opener: Opener = open_regular) -> bytes:
    """At most `size_max_bytes` of a file; `limit` says the same to a person. Raises BadFile."""
    try:
        with open(path, "rb", opener=opener) as file:
            content = file.read(size_max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error) or "it cannot be opened").lower()
        raise BadFile(f"{path.name} cannot be read: {reason}; check the path {path}.") from error
    if len(content) > size_max_bytes:
        raise BadFile(f"{path.name} is larger than the limit of {limit}; split it, or leave out what is not needed.")
    return content


def decode(name: str, content: bytes) -> str:
    """The text of an input file. Raises BadFile for a NUL byte and for anything that is not UTF-8, with the line."""
    nul = content.find(b"\0")
    if nul >= 0:
        line = content.count(b"\n", 0, nul) + 1
        raise BadFile(f"{name}, line {line}: there is a NUL byte in it; save the file as plain UTF-8 text.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise BadFile(f"{name}, line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8 text.") from None


def lines(name: str, content: bytes, *, columns: Iterable[str]) -> Iterator[Line]:
    """The records of a CSV file with a header, at least one, each with all `columns`. Raises BadFile."""
    if len(content) > FILE_SIZE_MAX_MB * 1_000_000:
        raise BadFile(f"{name} is larger than the limit of {FILE_SIZE_MAX_MB} MB; split it by year or month.")
    text = decode(name, content).removeprefix("\ufeff")
    records = _records(name, text)
    header_number, header = next(records, (1, list[str]()))
    wanted = tuple(columns)
    if not header:
        raise BadFile(f"{name} is empty; start it with the header line {','.join(wanted)}.")
    places = _places(name, header_number, header, wanted)
    empty = True
    for number, record in records:
        if len(record) != len(header):
            raise BadFile(
                f"{name}, line {number}: {len(record)} cells where the header has {len(header)};"
                " give every column one cell, and put quotes around a cell that has a comma in it."
            )
        empty = False
        yield Line(file=name, number=number, cells={column: record[place].strip() for column, place in places.items()})
    if empty:
        raise BadFile(f"{name} has a header but no rows below it; add at least one row of figures.")


def _places(name: str, number: int, header: list[str], wanted: tuple[str, ...]) -> dict[str, int]:
    found = [cell.strip() for cell in header]
    missing = [column for column in wanted if column not in found]
    if missing:
        named = ", ".join(f"'{column}'" for column in missing)
        what = f"column {named} is" if len(missing) == 1 else f"columns {named} are"
        raise BadFile(f"{name}, line {number}: {what} missing; the header must name {','.join(wanted)}.")
    for column in wanted:
        if found.count(column) > 1:
            raise BadFile(f"{name}, line {number}, column '{column}': it stands there twice; keep one of them.")
    return {column: found.index(column) for column in wanted}


def _records(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, with the line each begins on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise BadFile(f"{name}, line {number}: {error}; check the quotes on this line.") from None
        if record is None:
            return
        if any(cell.strip() for cell in record):
            yield number, record


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def parse_month(text: str) -> Month:
    """`"2013-08"` as a Month. Raises BadMonth for anything else, the years 0000 and 9999 included."""
    match = _MONTH.fullmatch(text.strip())
    year, month = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1 <= year <= 9998 and 1 <= month <= 12):
        raise BadMonth(f"{_shown(text)} is not a month; write it as YYYY-MM, for example 2013-08.")
    return Month(first=date(year, month, 1), next_first=date(year + month // 12, month % 12 + 1, 1))
