"""Real contenders, really killed: who doubles what where, and Surefoot nothing."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import make_url

from app.crashtest.against import task
from app.crashtest.against.contenders import CONTENDERS, Contender, chosen
from app.crashtest.against.match import compare
from app.crashtest.against.table import Played, Table
from app.crashtest.session import CrashTestFailed
from transactions import InvalidInput
from transactions.local import LocalPostgres

ROW, SENT = "order.committed", "publish.committed"


def play(postgres: LocalPostgres, folder: Path, contenders: Sequence[Contender], windows: Sequence[str]) -> Table:
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    table = asyncio.run(compare(server, folder, contenders, windows, workers=4))
    print(table)
    return table


def outcome(table: Table, contender: str, window: str) -> Played:
    (played,) = [played for played in table.of(contender) if played.window == window]
    return played


@pytest.fixture(scope="module")
def table(postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return play(
        postgres, tmp_path_factory.mktemp("against"), chosen(["plain", "pydantic-ai-dbos,surefoot"]), (ROW, SENT)
    )


def test_every_run_ends_after_one_kill(table: Table) -> None:
    assert len(table.played) == 6
    assert [played for played in table.played if not played.ended or played.starts != 2] == []


def test_a_plain_agent_does_again_whatever_it_had_done(table: Table) -> None:
    row, sent = outcome(table, "plain", ROW), outcome(table, "plain", SENT)
    assert (row.orders, row.publications) == (2, 1)
    assert (sent.orders, sent.publications) == (2, 2)
    assert (row.calls_repeated, sent.calls_repeated) == (1, 2)


def test_recorded_steps_are_not_repeated_and_the_one_in_flight_is(table: Table) -> None:
    row, sent = outcome(table, "pydantic-ai-dbos", ROW), outcome(table, "pydantic-ai-dbos", SENT)
    assert (row.orders, row.publications) == (2, 1)
    assert (sent.orders, sent.publications) == (1, 2)
    assert (row.calls_repeated, sent.calls_repeated) == (0, 0)


def test_surefoot_doubles_and_loses_nothing(table: Table) -> None:
    assert {str(played) for played in table.of("surefoot")} == {"once each"}
    assert {played.calls_repeated for played in table.of("surefoot")} == {0}
    assert table.ok


def test_langgraph_does_not_repeat_a_node_that_ended_and_repeats_the_one_in_flight(
    postgres: LocalPostgres, tmp_path: Path
) -> None:
    try:
        contenders = chosen(["langgraph"])
    except InvalidInput as missing:
        pytest.skip(str(missing))
    table = play(postgres, tmp_path, contenders, (ROW, SENT))
    row, sent = outcome(table, "langgraph", ROW), outcome(table, "langgraph", SENT)
    assert (row.orders, row.publications) == (2, 1)
    assert (sent.orders, sent.publications) == (1, 2)
    assert (row.calls_repeated, sent.calls_repeated) == (0, 0)


def test_a_kill_that_found_another_world_than_its_window_names_is_no_measurement(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "WINDOWS", {ROW: task.Window("none of it is done", 0, 0)})
    with pytest.raises(CrashTestFailed, match=r"not killed as asked .* has \(1, 0\) .* not \(0, 0\)"):
        play(postgres, tmp_path, CONTENDERS[:1], (ROW,))
