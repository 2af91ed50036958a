"""Supporting documents: what they say, that their hash is of just that, and that a folder of notes has no way out."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from app.agents.monthly_report import documents
from app.agents.monthly_report.csv_file import BadFile, parse_month
from app.agents.monthly_report.documents import Document, find_documents, note_documents, weather_documents
from app.agents.monthly_report.figures import DayCounts

AUGUST = parse_month("2013-08")
HEADER = "date,origin,hours,precip_in,gust_max_mph,visibility_min_mi"
WEATHER = f"""{HEADER}
2013-07-31,EWR,24,9.0,99.0,0.1
2013-08-01,EWR,24,0.7,,2.5
2013-08-01,JFK,24,0.24,39.9,3.0
2013-08-02,EWR,24,0.1,41.0,10.0
2013-08-02,JFK,24,0.25,30.0,
2013-08-03,EWR,24,,,
2013-08-03,JFK,24,0.2,20.0,10.0
2013-09-01,EWR,24,9.0,99.0,0.1
""".encode()


def day(name: str, *, flights: int, cancelled: int, delayed: int) -> DayCounts:
    return DayCounts(
        day=name, rows=1, days=1, flights=flights, cancelled=cancelled, delayed_departures=delayed,
        departure_delay_min=0, arrivals=0, late_arrivals=0,
    )  # fmt: skip


def assert_citable(found: list[Document]) -> None:
    assert len({document.id for document in found}) == len(found)
    for document in found:
        assert document.sha256 == hashlib.sha256(document.text.encode()).hexdigest()
        assert len(document.id) <= 40


def test_the_weather_of_a_month_is_one_document_per_airport_and_one_about_what_coincides() -> None:
    days = [
        day("2013-08-01", flights=100, cancelled=10, delayed=45),
        day("2013-08-02", flights=100, cancelled=0, delayed=15),
        day("2013-08-03", flights=100, cancelled=1, delayed=9),
        day("2013-08-04", flights=1000, cancelled=0, delayed=0),  # no weather known: on neither side
    ]
    found = weather_documents("w.csv", WEATHER, month=AUGUST, days=days)
    assert_citable(found)
    assert [document.id for document in found] == ["weather-2013-08", "weather-EWR-2013-08", "weather-JFK-2013-08"]
    both, ewr, jfk = found
    assert ewr.text == (
        "Weather at EWR in 2013-08: 3 days observed.\n"
        "Rain: 0.8 in over 2 days; at least 0.25 in on 1 of them.\n"
        "Strongest gust: 41.0 mph on 2013-08-02 (gusts were observed on 1 days).\n"
        "Worst visibility: 2.5 mi on 2013-08-01.\n"
        "Bad-weather days (rain of at least 0.25 in, a gust of at least 40 mph, or visibility below 3 mi): 2.\n"
        "- 2013-08-01: rain 0.7 in, visibility 2.5 mi\n"
        "- 2013-08-02: gust 41.0 mph\n"
    )
    assert "- 2013-08-02: rain 0.25 in\n" in jfk.text
    assert jfk.days == ("2013-08-02",)
    assert "Days with bad weather at one airport or more: 2 of 3; at all of them: 1.\n" in both.text
    assert "- 2013-08-01: EWR\n- 2013-08-02: EWR, JFK\n" in both.text
    assert "- 2 bad-weather days: 60 of 190 (31.58%) departed flights left" in both.text
    assert (
        "- 1 other days: 9 of 99 (9.09%) departed flights left more than 15 minutes late, 1 of 100 (1.00%)" in both.text
    )
    assert both.days == ("2013-08-01", "2013-08-02")
    assert hashlib.sha256(WEATHER).hexdigest() in both.source
    assert weather_documents("w.csv", WEATHER, month=AUGUST, days=days) == found


def test_a_month_without_weather_has_no_weather_documents() -> None:
    assert weather_documents("w.csv", WEATHER, month=parse_month("2014-08")) == []


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("2013-08-09,EWR,24,wet,,", "w.csv, line 2, column 'precip_in': 'wet' is not a measurement; write a decimal"),
        ("2013-08-09,EWR,24,-0.1,,", "w.csv, line 2, column 'precip_in': '-0.1' is not a measurement; write a decimal"),
        ("2013-08-09,EWR,24,nan,,", "w.csv, line 2, column 'precip_in': 'nan' is not a measurement; write a decimal"),
        ("2013-08-09,EWR,24,,,\n2013-08-09,EWR,24,,,", "w.csv, line 3, column 'date': a second row for 2013-08-09"),
    ],
)  # fmt: skip
def test_bad_weather_files_are_refused(row: str, sentence: str) -> None:
    with pytest.raises(BadFile) as error:
        weather_documents("w.csv", f"{HEADER}\n{row}\n".encode(), month=AUGUST)
    assert str(error.value).startswith(sentence)


def test_notes_are_cited_byte_by_byte_under_an_id_that_stays(tmp_path: Path) -> None:
    content = "\ufeff# Runway works ##\r\n\r\nRunway 4L closed — nights.\r\n".encode()
    (tmp_path / "Runway 4L.md").write_bytes(content)
    (tmp_path / "plain.md").write_text("No heading here.")
    (tmp_path / ".hidden.md").write_text("no")
    (tmp_path / "other.txt").write_text("no")
    found = note_documents(tmp_path)
    assert_citable(found)
    runway, plain = found
    assert (runway.title, runway.source) == ("Runway works", "Runway 4L.md")
    assert runway.sha256 == hashlib.sha256(content).hexdigest()
    assert plain.title == "plain.md"
    assert runway.id.startswith("note-runway-4l-")
    (tmp_path / "runway-4l.md").write_text("another one")
    (tmp_path / "Runway 4L.md").write_text("changed")
    again = {document.source: document for document in note_documents(tmp_path)}
    assert again["Runway 4L.md"].id == runway.id
    assert again["Runway 4L.md"].sha256 != runway.sha256
    assert_citable(list(again.values()))


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "link.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(BadFile, match=r"^link.md cannot be read: it is a link, put the file itself into the folder;"):
        note_documents(notes)


def test_a_pipe_or_folder_named_like_a_note_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(BadFile, match=r"^pipe.md cannot be read: it is not a regular file;"):
        note_documents(tmp_path)
    (tmp_path / "pipe.md").unlink()
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(BadFile, match=r"^folder.md cannot be read: (it is not a regular file|is a directory);"):
        note_documents(tmp_path)


def test_notes_have_limits(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"no such file or directory; check its path\.$"):
        note_documents(tmp_path / "none")
    (tmp_path / "long.md").write_bytes(b"x" * (documents.NOTE_SIZE_MAX_KB * 1000 + 1))
    with pytest.raises(BadFile, match=r"^long.md is larger than the limit of 64 kB;"):
        note_documents(tmp_path)
    (tmp_path / "long.md").write_bytes(b"\xff")
    with pytest.raises(BadFile, match=r"^long.md, line 1: byte 0xff is not UTF-8;"):
        note_documents(tmp_path)
    for number in range(documents.NOTES_COUNT_MAX):
        (tmp_path / f"{number}.md").write_text("x")
    with pytest.raises(BadFile, match=r"has 21 Markdown files; leave at most 20 in it\.$"):
        note_documents(tmp_path)


def test_both_sources_together_or_neither(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_bytes(WEATHER)
    (tmp_path / "n.md").write_text("# N")
    found = find_documents(AUGUST, weather=tmp_path / "w.csv", notes=tmp_path)
    assert [document.id.split("-")[0] for document in found] == ["weather"] * 3 + ["note"]
    assert find_documents(AUGUST, weather=None, notes=None) == []
