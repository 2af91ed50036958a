"""What is counted, how it is told, and what is judged."""

import json

import pytest

from app.crashtest.against import task
from app.crashtest.against.contenders import CONTENDERS, Contender, chosen
from app.crashtest.against.match import windows
from app.crashtest.against.table import Played, Table
from app.crashtest.faults import parse
from transactions import InvalidInput

SENT = "publish.committed"


def played(contender: str, window: str | None, orders: int = 1, publications: int = 1, ended: bool = True) -> Played:
    return Played(contender, window, orders, publications, calls_repeated=1, ended=ended, starts=2, seconds=0.5)


def table(*cases: Played) -> Table:
    return Table(cases, {case.contender: f"{case.contender} 1.0" for case in cases}, 3.0)


def test_more_than_one_of_an_effect_is_a_duplicate_and_none_is_a_loss() -> None:
    case = played("plain", SENT, orders=0, publications=3)
    assert (case.duplicates, case.losses) == (2, 1)
    assert str(case) == "0 orders, 3 publications"
    assert str(played("plain", SENT)) == "once each"
    assert str(played("plain", SENT, ended=False)) == "not ended"


def test_the_table_has_a_row_a_window_a_column_a_contender_and_the_words_that_play_a_row_again() -> None:
    lines = str(
        table(played("plain", None), played("surefoot", None), played("plain", SENT, 2, 2), played("surefoot", SENT))
    ).splitlines()
    assert lines[0].split() == ["killed", "plain", "surefoot", "play", "it", "again"]
    assert lines[1].split() == ["left", "alone", "once", "each", "once", "each"]
    assert lines[2].startswith(task.WINDOWS[SENT].title)
    told, _, replay = lines[2].partition("--replay ")
    assert told.removeprefix(task.WINDOWS[SENT].title).split() == ["2", "orders,", "2", "publications", "once", "each"]
    assert windows([replay]) == (SENT,)
    assert [line.split() for line in lines if line.startswith(("duplicates", "losses"))] == [
        ["duplicates", "2", "0"],
        ["losses", "0", "0"],
    ]


@pytest.mark.parametrize(
    ("case", "ok"),
    [
        (played("surefoot", SENT), True),
        (played("plain", SENT, orders=2, publications=0, ended=False), True),
        (played("surefoot", SENT, orders=2), False),
        (played("surefoot", SENT, publications=0), False),
        (played("surefoot", SENT, ended=False), False),
    ],
)
def test_only_surefoot_is_judged(case: Played, ok: bool) -> None:
    assert table(played("plain", SENT, 2), case).ok is ok


def test_the_json_has_every_case_and_the_sums() -> None:
    told = json.loads(json.dumps(table(played("plain", SENT, 2), played("surefoot", None)).as_json()))
    assert told["ok"] is True
    assert [(case["contender"], case["window"], case["replay"]) for case in told["cases"]] == [
        ("plain", SENT, f"kill:{SENT}:1"),
        ("surefoot", None, "undisturbed"),
    ]
    assert told["sums"]["duplicates"] == {"plain": 1, "surefoot": 0}


def test_all_windows_are_played_and_a_run_that_is_left_alone() -> None:
    assert windows(()) == (None, *task.WINDOWS)
    assert all(parse(f"kill:{window}:1") for window in task.WINDOWS)


@pytest.mark.parametrize(
    "replay", ["kill:nowhere:1", f"stop:{SENT}:1", f"kill:{SENT}:2", f"kill:{SENT}:1,kill:model.1:1"]
)
def test_what_is_no_row_is_refused(replay: str) -> None:
    with pytest.raises(InvalidInput):
        windows([replay])


def test_contenders_are_named_in_lists_or_one_by_one() -> None:
    assert [contender.name for contender in chosen(["surefoot,pydantic-ai-dbos", "plain"])] == [
        "plain",
        "pydantic-ai-dbos",
        "surefoot",
    ]
    with pytest.raises(InvalidInput, match="crewai: choose from plain, pydantic-ai-dbos, langgraph, surefoot, all"):
        chosen(["plain,crewai"])
    with pytest.raises(InvalidInput):
        chosen([","])


def test_what_is_not_installed_is_said_with_what_installs_it() -> None:
    with pytest.raises(InvalidInput, match=r"needs the package no-such-thing.*uv sync --group bench.*leave other out"):
        Contender("other", "other", ("no-such-thing",), group="bench").versions()


def test_only_what_the_product_does_not_need_comes_from_a_group() -> None:
    assert [contender.name for contender in CONTENDERS if contender.group] == ["langgraph"]
