"""Bad input: each fault gives one sentence with the file, the line, the column and what to do."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

import pytest

from app.agents.monthly_report import csv_file
from app.agents.monthly_report.csv_file import (
    BadFile,
    BadMonth,
    DailyFigures,
    Month,
    parse_daily_figures,
    parse_month,
    read_content,
)

HEADER = ",".join(csv_file.COLUMNS)
ROW = "2013-08-01,EWR,UA,United Air Lines Inc.,120,3,-15,20,110,25,150000"
NEXT = "2013-08-02,EWR,UA,United Air Lines Inc.,100,0,10,5,100,6,140000"


def table(*rows: str, header: str = HEADER) -> bytes:
    return "\n".join([header, *rows, ""]).encode()


def changed(column: str, cell: str) -> bytes:
    cells = NEXT.split(",")
    cells[csv_file.COLUMNS.index(column)] = cell
    return table(ROW, ",".join(cells))


NUMBER = "is not a whole number; write digits only, without separators or decimals."
DAY = "is not a date; write it as YYYY-MM-DD."
CELLS = (
    "cells where the header has 11; give every column one cell, and put quotes around a cell that has a comma in it."
)


BAD = {
    "missing column": (
        table(ROW, header=HEADER.replace("cancelled,", "")),
        "a.csv, line 1: column 'cancelled' is missing; the header must name date,origin,",
    ),
    "two missing columns": (
        table(ROW, header="date;origin"),
        "a.csv, line 1: columns 'date', 'origin', 'carrier',",
    ),
    "column twice": (
        table(ROW + ",1", header=HEADER + ",miles"),
        "a.csv, line 1, column 'miles': it stands there twice; keep one",
    ),
    "word for number": (
        changed("flights", "many"),
        f"a.csv, line 3, column 'flights': 'many' {NUMBER}",
    ),
    "decimal": (changed("flights", "100.0"), f"line 3, column 'flights': '100.0' {NUMBER}"),
    "separator": (changed("miles", "1 000"), f"line 3, column 'miles': '1 000' {NUMBER}"),
    "exotic digits": (changed("miles", "١٢"), f"line 3, column 'miles': '١٢' {NUMBER}"),
    "empty cell": (changed("miles", ""), f"line 3, column 'miles': '' {NUMBER}"),
    "huge": (changed("miles", "9" * 5000), "999...' is too large; write at most 12 digits."),
    "bad day": (changed("date", "2013-08-32"), f"a.csv, line 3, column 'date': '2013-08-32' {DAY}"),
    "other date style": (changed("date", "08/02/2013"), f"line 3, column 'date': '08/02/2013' {DAY}"),
    "ISO week": (changed("date", "2013-W31-5"), f"line 3, column 'date': '2013-W31-5' {DAY}"),
    "negative": (
        changed("cancelled", "-1"),
        "a.csv, line 3, column 'cancelled': -1 is negative; write a count of zero or more.",
    ),
    "cancelled > flights": (
        changed("cancelled", "101"),
        "a.csv, line 3, column 'cancelled': 101 is more than the 100 in 'flights'; correct one of the two.",
    ),
    "late > arrivals": (
        changed("late_arrivals", "101"),
        "column 'late_arrivals': 101 is more than the 100 in 'arrivals'; correct one",
    ),
    "no code": (changed("origin", "  "), "line 3, column 'origin': the cell is empty; fill it in or remove the line."),
    "control character": (
        changed("airline", "A\x07"),
        "column 'airline': 'A\\x07' has control characters in it; write plain",
    ),
    "long name": (
        changed("airline", "A" * 101),
        "column 'airline': 101 characters; shorten it to at most 100 characters.",
    ),
    "empty": (b"", "a.csv is empty; start it with the header line date,origin,"),
    "blank": (b"\xef\xbb\xbf\n \n", "a.csv is empty; start it with the header line date,origin,"),
    "header only": (table(), "a.csv has a header but no rows below it; add at least one row of figures."),
    "too few cells": (table(ROW, "2013-08-02,EWR"), f"a.csv, line 3: 2 {CELLS}"),
    "too many cells": (table(ROW, NEXT + ",1"), f"a.csv, line 3: 12 {CELLS}"),
    "open quote": (table(ROW, '"' + NEXT), "a.csv, line 3: unexpected end of data; check the quotes on this line."),
    "not UTF-8": (
        table(ROW) + "é".encode("latin-1"),
        "a.csv, line 3: byte 0xe9 is not UTF-8; save the file as UTF-8 text.",
    ),
    "NUL": (table(ROW) + b"\0", "a.csv, line 3: there is a NUL byte in it; save the file as plain UTF-8 text."),
    "UTF-16": (
        table(ROW).decode().encode("utf-16"),
        "a.csv, line 1: there is a NUL byte in it; save the file as plain UTF-8 text.",
    ),
    "row twice": (
        table(ROW, NEXT, ROW),
        "a.csv, line 4, column 'date': 2013-08-01 EWR UA stands on line 2 already;"
        " keep one row per date, origin and carrier.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_one_sentence_that_says_what_to_do(case: str) -> None:
    content, sentence = BAD[case]
    with pytest.raises(BadFile) as error:
        parse_daily_figures("a.csv", content)
    assert sentence in str(error.value)
    assert str(error.value).startswith("a.csv")
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_a_file_over_the_size_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(csv_file.FILE_SIZE_MAX_MB * 1_000_000 + 1)
    with pytest.raises(BadFile, match=r"^large.csv is larger than the limit of 20 MB; .+\.$"):
        read_content(path)
    with pytest.raises(BadFile, match=r"^large.csv is larger than the limit of 20 MB; .+\.$"):
        parse_daily_figures("large.csv", bytes(csv_file.FILE_SIZE_MAX_MB * 1_000_000 + 1))


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"^no.csv cannot be read: no such file or directory; check the path .+no.csv\.$"):
        read_content(tmp_path / "no.csv")
    with pytest.raises(BadFile, match="cannot be read: is a directory; check the path"):
        read_content(tmp_path)


def test_a_good_file_gives_its_rows_and_the_hash_of_its_bytes() -> None:
    content = table(ROW, NEXT)
    file = parse_daily_figures("a.csv", content)
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert file.rows[0] == DailyFigures(
        date(2013, 8, 1), "EWR", "UA", "United Air Lines Inc.", 120, 3, -15, 20, 110, 25, 150000
    )
    assert len(file.rows) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + table(ROW, NEXT),
        table(ROW, NEXT).replace(b"\n", b"\r\n"),
        table(ROW, "", " , ", NEXT),
        table(ROW.replace(",", " , "), NEXT),
        table(ROW.replace("United Air Lines Inc.", '"United Air Lines Inc."'), NEXT),
        table("x," + ROW + ",y", "," + NEXT + ",", header="other," + HEADER + ",notes"),
    ],
    ids=["byte order mark", "CRLF", "blank lines", "blanks", "quotes", "extra columns"],
)
def test_harmless_variants_of_a_file_mean_the_same(content: bytes) -> None:
    assert parse_daily_figures("a.csv", content).rows == parse_daily_figures("a.csv", table(ROW, NEXT)).rows


def test_columns_may_stand_in_any_order() -> None:
    header = ",".join(reversed(csv_file.COLUMNS))
    row = ",".join(reversed(ROW.split(",")))
    assert parse_daily_figures("a.csv", table(row, header=header)).rows == parse_daily_figures("a.csv", table(ROW)).rows


@pytest.mark.parametrize(
    ("text", "first", "next_first"),
    [("2013-08", date(2013, 8, 1), date(2013, 9, 1)), ("2013-12", date(2013, 12, 1), date(2014, 1, 1))],
)
def test_a_month_is_a_half_open_range_of_days(text: str, first: date, next_first: date) -> None:
    month = parse_month(text)
    assert month == Month(first=first, next_first=next_first)
    assert str(month) == text


@pytest.mark.parametrize(
    "text", ["", "2013", "2013-8", "2013-13", "2013-00", "0000-01", "9999-12", "May 2013", "2013-08-01", "٢٠١٣-٠٨"]
)
def test_a_bad_month_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(BadMonth, match=r"is not a month; write it as YYYY-MM, for example 2013-08\.$"):
        parse_month(text)
