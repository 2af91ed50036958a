"""Whatever is killed, wherever: the next join has a server, and committed rows are there."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

Start = Callable[..., Any]
as_root_if_possible = pytest.mark.parametrize("uid", ["root" if os.geteuid() == 0 else "user"], indirect=True)
as_both = pytest.mark.parametrize("uid", ["root", "user"] if os.geteuid() == 0 else ["user"], indirect=True)


@as_both
def test_committed_rows_survive_a_killed_server(member: Start, kill_server: Callable[[], None]) -> None:
    one, other = member(), member()
    url = one.ask("join")["url"]
    one.ask("query", sql="create table kept as select generate_series(1, 500) as n")
    kill_server()

    assert other.ask("join")["url"] == url
    assert other.value("select count(*) from kept") == 500
    assert one.value("select count(*) from kept") == 500
    assert one.ask("leave") == {"stopped": False}
    assert other.ask("leave") == {"stopped": True}


def test_a_server_killed_with_its_owner_is_started_anew(member: Start, kill_server: Callable[[], None]) -> None:
    owner, other = member(), member()
    owner.ask("join")
    owner.kill()
    kill_server()

    other.ask("join")
    assert other.ask("leave") == {"stopped": True}


def test_leaving_a_dead_server_touches_no_stranger(
    data: Path, member: Start, kill_server: Callable[[], None], stranger: subprocess.Popen[bytes]
) -> None:
    one = member()
    one.ask("join")
    kill_server()
    put_pid(data, stranger.pid)

    assert one.ask("leave") == {"stopped": False}
    assert stranger.poll() is None


@as_both
def test_a_stranger_in_postmaster_pid_is_left_alone(
    data: Path, member: Start, kill_server: Callable[[], None], stranger: subprocess.Popen[bytes]
) -> None:
    one = member()
    one.ask("join")
    kill_server()
    put_pid(data, stranger.pid)

    one.ask("join")
    assert one.value("select 1") == 1
    assert one.ask("leave", force=True) == {"stopped": True}
    assert stranger.poll() is None


def test_a_zombie_in_postmaster_pid_does_not_matter(
    data: Path, member: Start, kill_server: Callable[[], None], stranger: subprocess.Popen[bytes], wait: Any
) -> None:
    one = member()
    one.ask("join")
    kill_server()
    stranger.kill()
    process = psutil.Process(stranger.pid)
    wait(lambda: process.status() == psutil.STATUS_ZOMBIE, "a zombie, because nobody asks for its exit code")
    put_pid(data, stranger.pid)

    one.ask("join")
    assert process.status() == psutil.STATUS_ZOMBIE
    assert one.ask("leave", force=True) == {"stopped": True}


@pytest.mark.parametrize("text", ["", "nonsense\n"])
def test_a_half_written_postmaster_pid_does_not_matter(
    text: str, data: Path, member: Start, kill_server: Callable[[], None]
) -> None:
    one = member()
    one.ask("join")
    kill_server()
    (data / "postmaster.pid").write_text(text)

    one.ask("join")
    assert one.value("select 1") == 1


def test_killed_with_initdb_while_the_data_folder_is_made(data: Path, cold_member: Start, wait: Any) -> None:
    first, second = cold_member(), cold_member()
    first.send("join")
    draft = data.with_name("data.new")
    wait(lambda: (draft / "global").is_dir(), "initdb has begun")
    programs = first.process.children(recursive=True)
    first.kill()
    for program in programs:
        with contextlib.suppress(psutil.NoSuchProcess):  # each may end with the one before
            program.kill()

    second.ask("join")
    assert second.value("select 1") == 1
    assert not draft.exists()
    assert second.ask("leave") == {"stopped": True}


@as_root_if_possible
def test_an_orphaned_initdb_is_waited_for(data: Path, cold_member: Start, wait: Any, is_free: Any) -> None:
    first, second = cold_member(), cold_member()
    first.send("join")
    draft = data.with_name("data.new")
    wait(lambda: (draft / "global").is_dir(), "initdb has begun")
    orphans = first.process.children(recursive=True)
    for orphan in orphans:
        orphan.suspend()
    made = draft.stat().st_ino
    first.kill()
    second.send("join")
    wait(lambda: not is_free(data.parents[1] / "lock"), "the second one has the lock")
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        assert draft.stat().st_ino == made, "the folder of a living initdb was taken away"
    for orphan in orphans:
        orphan.resume()

    second.answer()
    assert second.value("select 1") == 1
    assert not draft.exists()
    assert second.ask("leave") == {"stopped": True}


def test_killed_while_the_server_starts(data: Path, member: Start, wait: Any) -> None:
    first, second = member(), member()
    first.send("join")
    wait((data / "postmaster.pid").exists, "the server has begun to start")
    first.kill()

    second.ask("join")
    assert second.value("select 1") == 1
    assert second.ask("leave") == {"stopped": True}


def test_killed_while_it_stops_the_server(data: Path, member: Start, wait: Any) -> None:
    first, second = member(), member()
    first.ask("join")
    log = data.with_name("server.log")
    before = len(log.read_text())
    first.send("leave")
    wait(lambda: "received fast shutdown request" in log.read_text()[before:], "the server has begun to stop")
    first.kill()

    second.ask("join")
    assert second.value("select 1") == 1
    assert second.ask("leave") == {"stopped": True}


def test_a_start_that_fails_says_why(data: Path, member: Start) -> None:
    one = member()
    (data / "postgresql.conf").write_text("no_such_setting = 1\n")

    error = one.ask("join")["error"]
    assert "did not start (FATAL: " in error
    assert error.endswith("or set DATABASE_URL")


@pytest.fixture
def data(base: Path) -> Path:
    return base / "home/postgres/cluster/data"


@pytest.fixture
def kill_server(data: Path, server_pid: Callable[[Path], int], wait: Any) -> Callable[[], None]:
    def kill() -> None:
        process = psutil.Process(server_pid(data))
        process.send_signal(signal.SIGKILL)
        wait(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "the server is dead")

    return kill


@pytest.fixture
def stranger(uid: int | None) -> Generator[subprocess.Popen[bytes]]:
    """A living process of the user that runs Postgres."""
    as_root = os.geteuid() == 0
    owner, groups = ("nobody" if as_root else None), (list[int]() if as_root else None)
    with subprocess.Popen(["sleep", "600"], user=owner, extra_groups=groups) as process:
        yield process
        process.kill()


def put_pid(data: Path, pid: int) -> None:
    file = data / "postmaster.pid"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([str(pid), *lines[1:]]) + "\n")
