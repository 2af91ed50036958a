"""A backup that was taken in the middle of runs takes the place of what went on: nothing of that is done once more."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from app import wiring
from app.crashtest.place import server_folder
from app.loading import load_agents
from tests.estate import running
from tests.kit import World, Zygote, until
from tests.outside import Outside
from tests.stage import Stage
from transactions import epochs
from transactions.whereabouts import Whereabouts

KEYED = [("named_send", {"text": "keyed", "name": "k"})]


class Backup:
    """The database of a stage as it was when it was taken, which can take its place."""

    def __init__(self, url: str) -> None:
        self._server = make_url(url).set(database="postgres").render_as_string(hide_password=False)
        self._name = make_url(url).database or ""
        self._copy = f"{self._name}_backup"

    def take(self) -> None:
        sessions = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
        with psycopg.connect(self._server, autocommit=True) as server:
            until("nobody is connected", lambda: server.execute(sessions, (self._name,)).fetchone() == (0,))
            server.execute(_named("create database {} template {}", self._copy, self._name))

    def restore(self) -> None:
        with psycopg.connect(self._server, autocommit=True) as server:
            server.execute(_named("drop database {} with (force)", self._name))
            server.execute(_named("alter database {} rename to {}", self._copy, self._name))


def _named(query: str, *names: str) -> sql.Composed:
    return sql.SQL(query).format(*map(sql.Identifier, names))  # pyright: ignore[reportArgumentType]


class Lost:
    """What went on after the backup: one send each, and nothing in the backup says so."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.backup = stage, Backup(stage.database_url)
        worker = stage.working()
        self.gated = stage.script([("gated_send", {"text": "gated"})])
        self.still_asked = stage.script([("gated_send", {"text": "asked"})])
        for run_id in (self.gated, self.still_asked):
            stage.until_state(run_id, "waiting")
        worker.kill()
        self.later = stage.script([("look", {"text": "first"})], [("send", {"text": "later"})])
        self.blind = stage.script([("send_blindly", {"text": "blind"})])
        self.backup.take()
        worker = stage.working()
        stage.approve(self.gated)
        gone = stage.script(KEYED)
        for run_id in (self.gated, self.later, self.blind, gone):
            stage.until_state(run_id, "completed")
        self.backup.restore()
        assert worker.until_it_dies() == 75, "one that lives on finds that it is not where it was"
        assert stage.rows("select 1 from surefoot.runs where run_id = %s", gone) == []
        assert self.sent() == {"gated": 1, "later": 1, "blind": 1, "keyed": 1}

    def sent(self) -> dict[str, int]:
        texts = [sent.text for sent in self.stage.outside.sent]
        return {text: texts.count(text) for text in texts}


def test_after_a_restore_what_may_have_been_done_is_looked_for_before_it_is_sent(stage: Stage) -> None:
    lost = Lost(stage)
    stage.working()
    for run_id in (lost.gated, lost.still_asked):
        stage.approve(run_id)
    again, fresh = stage.script(KEYED), stage.script([("send", {"text": "fresh"})])
    for run_id in (lost.gated, lost.still_asked, lost.later, again, fresh):
        stage.until_state(run_id, "completed")
    # What nobody can tell waits for a person, and what was not done in what was lost is done now.
    [row] = stage.rows("select run_id, waits_for, why from surefoot.unknown_actions")
    assert (row["run_id"], row["waits_for"]) == (lost.blind, "person")
    assert "it may have been done in what the restored database has lost" in row["why"]
    assert lost.sent() == {"gated": 1, "later": 1, "blind": 1, "keyed": 1, "asked": 1, "fresh": 1}
    assert [looked for looked in stage.outside.looked_up if looked.startswith(fresh)] == []
    [epoch] = stage.rows("select epoch, why from surefoot.epochs where epoch > 1")
    assert "it was restored or copied" in epoch["why"]
    told = stage.rows("select run_id from surefoot.events where kind = 'epoch.began'")
    assert {row["run_id"] for row in told} == {lost.gated, lost.still_asked, lost.later, lost.blind}


def test_control_without_an_epoch_it_is_done_twice(stage: Stage) -> None:
    lost = Lost(stage)
    stage.working(broken=sees_no_restore)
    stage.approve(lost.gated)
    again = stage.script(KEYED)
    for run_id in (lost.gated, lost.later, lost.blind, again):
        stage.until_state(run_id, "completed")
    assert lost.sent() == {"gated": 2, "later": 2, "blind": 2, "keyed": 2}


def sees_no_restore() -> None:
    async def arrive(*_: Any, **__: Any) -> tuple[Whereabouts, None]:
        return Whereabouts(), None

    epochs.arrive = arrive


# A copy of the files of a cluster, put back.


@pytest.fixture
def apart(outside: Outside, tmp_path: Path, zygote: Zygote) -> Iterator[Callable[[], AbstractContextManager[Stage]]]:
    """A cluster of its own: each block is one time that it runs."""
    with server_folder(in_memory=True) as folder:

        @contextmanager
        def up() -> Iterator[Stage]:
            with running(folder) as server:
                wiring.migrate_database(server.url, load_agents("tests.agents.scripted:AGENTS"))
                with Stage(server.url, World(tmp_path), outside, tmp_path, zygote) as stage:
                    yield stage
                server.leave(force=True)

        yield up


def test_of_files_that_were_put_back_a_person_has_to_say_so(
    apart: Callable[[], AbstractContextManager[Stage]], tmp_path: Path, outside: Outside
) -> None:
    with apart() as stage:
        stage.announce()
        run_id = stage.script([("send", {"text": "x"})])
        data = Path(stage.rows("show data_directory")[0]["data_directory"])
    files = data.with_name("files")
    _copy(data, files)
    with apart() as stage:
        stage.working()
        stage.until_state(run_id, "completed")
    assert len(outside.sent) == 1
    _copy(files, data)
    with apart() as stage:
        said = stage.command("db", "restored", "--reason", "the files of last night")
        assert (said.returncode, said.stdout.splitlines()[0]) == (
            0,
            "epoch 2 began: 1 open runs, 0 effects to look for first",
        )
        stage.working()
        stage.until_state(run_id, "completed")
    assert len(outside.sent) == 1
    _copy(files, data)
    with apart() as stage:  # the control: nobody has said so
        stage.working()
        stage.until_state(run_id, "completed")
    assert len(outside.sent) == 2


def test_a_server_that_went_over_to_another_timeline_is_seen(
    apart: Callable[[], AbstractContextManager[Stage]],
) -> None:
    """As a standby does when it is promoted, and an archive that was recovered."""
    with apart() as stage:
        stage.announce()
        run_id = stage.script([("send", {"text": "x"})])
        data = Path(stage.rows("show data_directory")[0]["data_directory"])
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    (data / "recovery.signal").touch()
    with apart() as stage:
        stage.working()
        stage.until_state(run_id, "completed")
        [epoch] = stage.rows("select why from surefoot.epochs where epoch = 2")
        assert "is on timeline 2 of its log, and was on 1" in epoch["why"]
        assert stage.outside.looked_up, "the effect counts as sent, and is looked for"


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
