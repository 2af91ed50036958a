"""`surefoot run`: an unknown agent, a wrong input, a file that cannot be used. One sentence, and nothing is started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.agents.monthly_report.csv_file import COLUMNS, FILE_SIZE_MAX_MB
from tests.bad_input.sentences import sentence
from tests.forked import Ended, plain_environment, surefoot

HEADER = ",".join(COLUMNS)
ROW = "2013-08-01,EWR,UA,United Air Lines Inc.,120,3,-15,20,110,25,150000"


def refused(url: str, *arguments: str) -> str:
    return sentence(surefoot("run", *arguments, "--no-wait", env={"DATABASE_URL": url}))


def report(url: str, request: object, *arguments: str) -> str:
    return refused(url, "monthly_report", "--input", json.dumps(request), *arguments)


def test_an_agent_nobody_has_heard_of_is_named_with_those_there_are(nothing_started: str) -> None:
    assert refused(nothing_started, "nobody", "--input", "x") == (
        "No agent named 'nobody': choose one of: monthly_report, ticket_triage."
    )


def test_a_process_that_is_not_forked_says_the_same(nothing_started: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", "run", "nobody", "--input", "x", "--no-wait"],
        env={**plain_environment(), "DATABASE_URL": nothing_started},
        capture_output=True,
        text=True,
        check=False,
    )
    said = sentence(Ended(ended.returncode, ended.stdout, ended.stderr))
    assert said == refused(nothing_started, "nobody", "--input", "x")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("2013-08", "The input of monthly_report is not right: input: Input should be a valid dictionary"),
        (["2013-08"], "The input of monthly_report is not right: input: Input should be a valid dictionary"),
        ({}, "The input of monthly_report is not right: month: Field required. Correct it and start again."),
        ({"month": 8}, "month: Input should be a valid string. Correct it and start again."),
        ({"month": "2013-08", "date": "x"}, "date: Extra inputs are not permitted. Correct it and start again."),
        ({"month": "2013-13"}, "'2013-13' is not a month; write it as YYYY-MM, for example 2013-08."),
        ({"month": "August"}, "'August' is not a month; write it as YYYY-MM, for example 2013-08."),
        ({"month": "2013-08", "notes": "a\0"}, "The input contains a NUL character"),
        (
            {"month": float("nan")},
            "The input of monthly_report is not right: input: Input should be a valid dictionary",
        ),
        ({"month": "2013-08", "data": "a\0"}, "cannot be read: embedded null byte; check the path"),
        ({"month": "2013-08", "notes": "n" * 5000}, "notes: String should have at most 4096 characters."),
    ],
    ids=lambda value: json.dumps(value)[:40] if not isinstance(value, str) else None,
)
def test_an_input_that_is_not_right_is_refused(request_: object, words: str, nothing_started: str) -> None:
    assert words in report(nothing_started, request_)


def test_text_that_is_half_json_is_refused(nothing_started: str) -> None:
    assert "The input of monthly_report is not right" in refused(
        nothing_started, "monthly_report", "--input", '{"month": "2013-08"'
    )


def test_a_file_beside_an_input_that_has_no_place_for_it_is_refused(nothing_started: str) -> None:
    assert "--data needs a JSON input to go into" in refused(
        nothing_started, "monthly_report", "--input", "August", "--data", "x.csv"
    )


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_an_idempotency_key_has_a_length(key: str, nothing_started: str) -> None:
    assert report(nothing_started, {"month": "2013-08"}, "--key", key) == (
        "An idempotency key has 1 to 255 characters: send a shorter one."
    )


FILES = {
    "missing column": (
        f"{HEADER.replace('cancelled,', '')}\n{ROW}\n",
        "data.csv, line 1: column 'cancelled' is missing; the header must name",
    ),
    "a word where a number belongs": (
        f"{HEADER}\n{ROW.replace('120', 'many')}\n",
        "data.csv, line 2, column 'flights': 'many' is not a whole number; write digits only",
    ),
    "empty": ("", "data.csv is empty; start it with the header line"),
    "header alone": (f"{HEADER}\n", "data.csv has a header but no rows below it; add at least one row of figures."),
    "not UTF-8": (f"{HEADER}\n{ROW}\né".encode("latin-1"), "data.csv, line 3: byte 0xe9 is not UTF-8"),
    "a month it has not": (
        f"{HEADER}\n{ROW.replace('-08-', '-07-')}\n",
        "data.csv has no data for 2013-08: choose one of 2013-07.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_cannot_be_used_is_refused_with_what_to_do(case: str, nothing_started: str, tmp_path: Path) -> None:
    content, words = FILES[case]
    file = tmp_path / "data.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert words in report(nothing_started, {"month": "2013-08"}, "--data", str(file))


def test_a_file_over_the_size_limit_is_refused(nothing_started: str, tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    with file.open("wb") as out:
        out.truncate(FILE_SIZE_MAX_MB * 1_000_000 + 1)
    said = report(nothing_started, {"month": "2013-08"}, "--data", str(file))
    assert said == "large.csv is larger than the limit of 20 MB; split it, or leave out what is not needed."


@pytest.mark.parametrize(("name", "reason"), [("no.csv", "no such file or directory"), (".", "is a directory")])
def test_a_file_that_is_none_is_refused(name: str, reason: str, nothing_started: str, tmp_path: Path) -> None:
    said = report(nothing_started, {"month": "2013-08"}, "--data", str(tmp_path / name))
    assert f"cannot be read: {reason}; check the path" in said


def test_a_pipe_is_refused_and_nobody_waits_for_it(nothing_started: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    said = report(nothing_started, {"month": "2013-08"}, "--data", str(tmp_path / "pipe.csv"))
    assert "pipe.csv cannot be read: it is not a regular file; check the path" in said


def test_a_month_that_the_bundled_file_has_not_is_refused_with_those_it_has(nothing_started: str) -> None:
    said = report(nothing_started, {"month": "2014-08"})
    assert said.startswith("ny_flights_2013_daily.csv has no data for 2014-08: choose one of 2013-01, 2013-02, ")
    assert said.endswith(", 2013-12.")


def test_a_run_that_is_followed_is_refused_the_same(nothing_started: str, tmp_path: Path) -> None:
    """Without `--no-wait` a worker runs in this process: it ends with the refusal, and leaves no live lease."""
    (tmp_path / "empty.csv").touch()
    ended = surefoot(
        "run", "monthly_report", "--input", '{"month": "2013-08"}', "--data", str(tmp_path / "empty.csv"),
        env={"DATABASE_URL": nothing_started},
    )  # fmt: skip
    assert sentence(ended).startswith("empty.csv is empty; start it with the header line")


def test_a_good_file_is_not_refused(migrated: str, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text(f"{HEADER}\n{ROW}\n")
    ended = surefoot(
        "run", "monthly_report", "--input", '{"month": "2013-08"}', "--data", str(file), "--no-wait",
        env={"DATABASE_URL": migrated},
    )  # fmt: skip
    assert ended.returncode == 0, ended
    assert "of monthly_report: queued\n  no live worker serves agent monthly_report" in ended.stdout
    assert ended.stderr == ""
