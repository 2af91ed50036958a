"""Folders that stop their servers, and processes that join them. Servers and processes are ended by process id only."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from transactions.local import join

ANSWER_S = 60
STORE = Path("/var/lib/surefoot")
IS_ROOT = os.geteuid() == 0
NOBODY = 65534


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what}"
        time.sleep(0.005)


def lock_is_free(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Member:
    """One driven process; see member.py."""

    def __init__(self, nursery: Path, folder: Path, uid: int | None, env: dict[str, str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(str(nursery))
        self._lines = self._socket.makefile("rw", encoding="utf-8")
        self._write({"folder": str(folder), "uid": uid, "env": env})
        self.process = psutil.Process(self.answer()["pid"])

    def send(self, do: str, **arguments: object) -> None:
        self._write({"do": do, **arguments})

    def answer(self) -> dict[str, Any]:
        line = self._lines.readline()
        assert line, "the process has ended without an answer"
        return json.loads(line)

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.answer()

    def value(self, sql: str) -> Any:
        return self.ask("query", sql=sql)["rows"][0][0]

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
        self.process.wait(ANSWER_S)

    def close(self) -> None:
        self.kill()
        self._lines.close()
        self._socket.close()

    def _write(self, message: dict[str, Any]) -> None:
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()


@pytest.fixture(scope="session")
def nursery() -> Generator[Path]:
    """The socket at which members are to be had."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-members-", dir="/tmp"))
    program = [sys.executable, str(Path(__file__).with_name("member.py")), str(folder / "door")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield folder / "door"
        process.kill()
    shutil.rmtree(folder)


@pytest.fixture
def base() -> Generator[Path]:
    """A folder everybody can enter (pytest's own tmp_path is closed to `nobody`). Its servers are stopped after."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    roots = [lock.parent for lock in folder.rglob("alive")]
    noted = [Path(note.read_text().strip()) for note in folder.rglob("postgres-is-in.txt")]
    moved = [root for root in noted if root.parent == STORE and root.is_dir()]
    for root in roots + moved:
        end_server(root)
    for root in [folder, *moved]:
        shutil.rmtree(root)


def end_server(root: Path) -> None:
    """End the server of this place by its process id, if it lives."""
    alive, data = root / "alive", root / "cluster/data"
    if not alive.exists() or lock_is_free(alive):
        return
    with contextlib.suppress(FileNotFoundError):  # an initdb whose launcher was killed: it ends by itself
        os.kill(postmaster(data), signal.SIGQUIT)
    wait_until(lambda: lock_is_free(alive), f"the server of {root} ends")


def postmaster(data: Path) -> int:
    """The process id of the server that runs on this data folder."""
    return int((data / "postmaster.pid").read_text().splitlines()[0])


@pytest.fixture
def start_member(nursery: Path) -> Generator[Callable[..., Member]]:
    members: list[Member] = []

    def start(folder: Path, uid: int | None = None, env: dict[str, str] | None = None) -> Member:
        members.append(Member(nursery, folder, uid, env or {}))
        return members[-1]

    yield start
    for member in members:
        member.close()


@pytest.fixture
def uid(request: pytest.FixtureRequest) -> int | None:
    """Who the members are: a normal user, and with `@as_both` once root as well. None: whoever runs the tests."""
    return NOBODY if IS_ROOT and getattr(request, "param", "user") == "user" else None


@pytest.fixture(scope="session")
def seed() -> Generator[Path]:
    """A folder whose database has been made: what only starts and stops is tested on copies, which saves a second."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-seed-", dir="/tmp"))
    folder.chmod(0o755)
    join(folder / "home").leave()
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture
def home(base: Path, seed: Path) -> Path:
    """A folder, of the user who runs the tests, whose database has been made."""
    sparse = ["--sparse=always"] if sys.platform == "linux" else []  # most of it is zeros
    subprocess.run(["cp", "-a", *sparse, seed, base], check=True)
    return base / "home"


@pytest.fixture
def member(home: Path, uid: int | None, start_member: Callable[..., Member]) -> Callable[..., Member]:
    """Starts members of one folder, `home`."""
    if uid is not None:
        for path in (home, home / "postgres", *(home / "postgres" / name for name in ("lock", "clients", "alive"))):
            os.chown(path, uid, uid)
    return lambda: start_member(home, uid)


@pytest.fixture
def cold_member(base: Path, uid: int | None, start_member: Callable[..., Member]) -> Callable[..., Member]:
    """Starts members of one folder, `base`/"home", that does not exist yet."""
    if uid is not None:
        os.chown(base, uid, uid)
    return lambda: start_member(base / "home", uid)


@pytest.fixture
def as_root() -> None:
    if not IS_ROOT:
        pytest.skip("needs root")


@pytest.fixture
def wait() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def server_pid() -> Callable[[Path], int]:
    return postmaster


@pytest.fixture
def is_free() -> Callable[[Path], bool]:
    return lock_is_free
