"""The processes of the demo: the outside world, workers, the plain loop. All end with the demo, however it ends."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

from app.demo.worlds import mailbox, publishing
from transactions import SurefootError

T = TypeVar("T")
PATIENCE_S = 120.0
STOP_PATIENCE_S = 15.0
LOOK_EVERY_S = 0.05
# Short leases and polls, so that the story does not wait; a process that is gone is noticed at once on its own machine.
PACE = MappingProxyType(
    {
        "SUREFOOT_LEASE_S": "10",
        "SUREFOOT_WATCHDOG_S": "0.2",
        "SUREFOOT_QUEUE_POLL_S": "0.1",
        "SUREFOOT_RELAY_POLL_S": "0.3",
    }
)
_APP = __name__.removesuffix(".demo.stage")
_ROOT = Path(__file__).parents[__name__.count(".")]
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
ENDINGS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class DemoFailed(SurefootError):
    """The demo could not go on; the message says where it stopped and what to look at."""


def until(what: str, look: Callable[[], T | None], *, patience_s: float = PATIENCE_S) -> T:
    """The first answer of `look` that is neither None nor false. Raises DemoFailed when there is none in time."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise DemoFailed(f"The demo stopped: for {patience_s:g} s nobody saw that {what}.")
        time.sleep(LOOK_EVERY_S)


@dataclass(frozen=True, slots=True)
class Child:
    """A process of the demo. What it says goes to `log`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_status(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self.process.poll()

    def said(self, words: str) -> str | None:
        """What follows `words` on the first line that begins with them; None while there is none."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line.removeprefix(words).strip() for line in lines if line.startswith(words)), None)

    def until_said(self, words: str) -> str:
        """Raises DemoFailed with the process's last words when it ends first."""

        def look() -> str | None:
            ended = self.wait_status() is not None
            found = self.said(words)
            if found is None and ended:
                raise DemoFailed(f"The demo stopped: {self.name} ended before it was ready: {self.last_words()}")
            return found

        return until(f"{self.name} is ready ({self.log})", look)

    def until_dead(self, *, patience_s: float = PATIENCE_S) -> int:
        until(f"{self.name} ends ({self.log})", lambda: self.wait_status() is not None, patience_s=patience_s)
        return self.process.returncode

    def last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1].strip() if lines else 'it said nothing'} (its log: {self.log})"

    def kill(self) -> int:
        """SIGKILL, if it runs; its wait status."""
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def end(self) -> None:
        """SIGKILL, and nothing is left of it. Not through Popen: an interrupt may have left its lock behind."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)

    def stop(self) -> int:
        """Ask it to end in good order; its wait status."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return self.kill()


class Stage:
    """Starts processes on one database and one outside world, in a folder of their own. Leaving it ends them all."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.publishing_file = folder / "publishing.sqlite"
        self.mail_file = folder / "mail.sqlite"
        self.failpoint_log = folder / "failpoints.log"
        self._env = _environment() | PACE | {"DATABASE_URL": database_url, "SUREFOOT_HOME": str(folder.parents[1])}
        self._env |= {"SUREFOOT_FAILPOINT_LOG": str(self.failpoint_log)}
        self._env.setdefault("MPLCONFIGDIR", str(folder.parent / "matplotlib"))  # its font list, made once
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            child.end()

    def open_world(self, services: Mapping[str, tuple[str, Path]] | None = None) -> None:
        """Start the publishing service and the mailbox; workers started from now on know where they are.

        services: others in their place, by the middle of the variable that tells their URL: a name and a file.
        """
        services = services or {"PUBLISHING": ("publishing", self.publishing_file), "SMTP": ("mailbox", self.mail_file)}
        started = {
            variable: self._start(name, ["-m", f"{_APP}.demo.worlds.{name}", "--port", "0", "--file", str(file)])
            for variable, (name, file) in services.items()
        }
        for variable, child in started.items():
            self._env[f"SUREFOOT_{variable}_URL"] = child.until_said("ready ")

    def worker(self, failpoint: str | None = None, **env: str) -> Child:
        """Start `surefoot serve` on a free port, armed with a failpoint. It is not ready yet."""
        number = sum(child.name.startswith("worker") for child in self._children) + 1
        arguments = ["-m", f"{_APP}.cli", "serve", "--port", "0"]
        return self._start(f"worker {number}", arguments, failpoint, env)

    def plain_loop(
        self, arguments: Sequence[str], failpoint: str | None = None, *, module: str = "demo.plain"
    ) -> Child:
        number = sum(child.name.startswith("plain loop") for child in self._children) + 1
        return self._start(f"plain loop {number}", ["-m", f"{_APP}.{module}", *arguments], failpoint)

    def struck(self, child: Child) -> str | None:
        """The failpoint at which a process died or stopped; None when it did not."""
        if not self.failpoint_log.exists():
            return None
        lines = [line.split() for line in self.failpoint_log.read_text().splitlines()]
        return next((name for pid, name in reversed(lines) if int(pid) == child.pid), None)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children]

    def publications(self) -> list[publishing.PublicationRow]:
        return publishing.publications(self.publishing_file)

    def mails(self) -> list[mailbox.Mail]:
        return mailbox.mails(self.mail_file)

    def _start(
        self, name: str, arguments: Sequence[str], failpoint: str | None = None, env: Mapping[str, str] | None = None
    ) -> Child:
        armed = {"SUREFOOT_FAILPOINT": failpoint} if failpoint else {}
        log = self.folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as out, _undisturbed():
            process = subprocess.Popen(
                [sys.executable, "-P", *arguments],
                env={**self._env, **(env or {}), **armed},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                process_group=0,  # Ctrl-C is for the demo, which then ends them all
                preexec_fn=_first_words(),
            )
            child = Child(name, process, log)
            self._children.append(child)
        return child


def _environment() -> dict[str, str]:
    """Ours without what would change the story, and with the path to this very code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUREFOOT_")}
    found = [str(_ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(found)}


@contextmanager
def _undisturbed() -> Generator[None]:
    """No signal ends the demo between the start of a child and our knowing it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _first_words() -> Callable[[], None]:
    """What a child does first: take signals again, and on Linux have the kernel end it when the demo is gone."""
    linux = sys.platform == "linux"
    libc, parent = ctypes.CDLL(None), os.getpid()

    def say() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        if linux:
            libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

    return say
