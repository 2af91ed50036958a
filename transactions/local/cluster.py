"""One cluster: made, started, asked whether it answers, stopped. The caller holds `place.lock` for all of it.

Whether Postgres runs is never read from a process id. Every program of it (initdb, the server, each backend) inherits
a descriptor that locks `place.alive`, so the kernel knows: no zombie, reused process id or other container misleads.
"""

import contextlib
import os
import re
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from psycopg import pq
from psycopg.conninfo import make_conninfo

from transactions.local import locks, place
from transactions.local.account import Account, Finished
from transactions.local.binaries import OVERRIDE, Binaries
from transactions.local.errors import LocalPostgresError
from transactions.local.place import SOCKET_NAME, Place

PORT = 5432  # only a part of the socket's name: nothing listens on the network
INITDB_TIMEOUT_S = 120
PROGRAM_TIMEOUT_S = 30
READY_TIMEOUT_S = 120  # a server that recovers from a crash may read a gigabyte of log first
START_ATTEMPTS_MAX = 3  # it may be killed while it starts
STOP_TIMEOUT_S = 60
PING_TIMEOUT_S = 3
POLL_S = 0.02
LOG_BYTES_MAX = 10_000_000
FAILURE = re.compile(r"\b(?:FATAL|PANIC|error): (?! *the database system is )")  # but not what was told to clients
SETTINGS = MappingProxyType(
    {
        "listen_addresses": "",
        "port": str(PORT),
        "max_connections": "200",
        "fsync": "on",  # the default, said again: what is committed survives, whatever postgresql.conf says
    }
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """`socket` is the folder for the socket of a server we start; one that runs already may have another."""

    place: Place
    account: Account
    binaries: Binaries
    socket: Path

    def ensure_running(self) -> Path:
        """The folder of the socket of a server that answers; the cluster is made and started as needed."""
        alive = self._settled()
        attempts, log_from = 0, 0
        while alive is not None:
            try:
                if attempts == START_ATTEMPTS_MAX:
                    raise self._failure("did not start", self._log_after(log_from))
                self._create(alive)
                log_from = self._start(alive)
            finally:
                os.close(alive)
            attempts += 1
            alive = self._settled()
        return self._socket_folder()

    def stop(self) -> bool:
        """Stop the server, cutting off whoever is connected. False when none was running."""
        alive = self._settled()  # so that the process id which pg_ctl signals is the server's, not a reused one
        if alive is not None:
            os.close(alive)
            return False
        stopped = self._run("pg_ctl", "stop", "-s", "-W", "-m", "fast", "-D", "data")
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while (alive := locks.try_exclusive(self.place.alive)) is None:
            if time.monotonic() > deadline:
                raise self._failure("did not stop", stopped.text or f"{STOP_TIMEOUT_S} s were not enough")
            time.sleep(POLL_S)
        os.close(alive)
        self._remove_socket_folder()
        return True

    def _settled(self) -> int | None:
        """None once the server answers. A descriptor that holds `alive` once nothing of Postgres runs here."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._answers():
                return None
            if (alive := locks.try_exclusive(self.place.alive)) is not None:
                return alive
            time.sleep(POLL_S)
        raise LocalPostgresError(
            f"Postgres runs in {self.place.data} but has not answered for {READY_TIMEOUT_S} s: "
            f"read {self.place.log}, end the processes that hold {self.place.alive}, or set DATABASE_URL"
        )

    def _answers(self) -> bool:
        where = make_conninfo(
            host=str(self._socket_folder()),
            port=PORT,
            user="postgres",
            dbname="postgres",
            connect_timeout=PING_TIMEOUT_S,
        )
        return pq.PGconn.ping(where.encode()) == pq.Ping.OK

    def _create(self, alive: int) -> None:
        """A data folder of these binaries' version, made beside its place and renamed: never a half-made one."""
        made = self.place.data
        if not made.exists():
            draft = self.place.cluster / "data.new"
            if draft.exists():
                shutil.rmtree(draft)
            provider = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if self.binaries.major >= 17 else ()
            options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--data-checksums", *provider)
            done = self._run("initdb", "-D", draft.name, *options, limit_s=INITDB_TIMEOUT_S, keep=(alive,))
            if done.code != 0:
                raise self._failure("could not make its data folder", done.text)
            draft.rename(made)
            _sync(self.place.cluster)
        version = made / "PG_VERSION"
        found = version.read_text().strip() if version.exists() else "unknown"
        if found != str(self.binaries.major):
            raise LocalPostgresError(
                f"{made} was made by Postgres {found} and {self.binaries.bindir} is Postgres {self.binaries.major}: "
                f"set {OVERRIDE} to the bin folder of a Postgres {found} (its pg_dump can move the database), "
                "choose another folder, or set DATABASE_URL"
            )

    def _start(self, alive: int) -> int:
        """Launch the server and return at once, with the size of the log before it."""
        place.make_socket_folder(self.socket, self.account)
        self._clear_leftovers()
        log = self.place.log
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        log_from = log.stat().st_size if log.exists() else 0
        settings = {**SETTINGS, "unix_socket_directories": f'"{self.socket}"'}
        options = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        # Names relative to the cluster: pg_ctl hands them to a shell, which would read `$` or a quote in a path.
        arguments = ("-s", "-W", "-D", "data", "-l", log.name, "-o", options)
        started = self._run("pg_ctl", "start", *arguments, keep=(alive,))
        if started.code != 0:
            raise self._failure("did not start", started.text)
        return log_from

    def _clear_leftovers(self) -> None:
        """Make the files of a dead server harmless; the caller holds `alive`, so it is dead.

        Postgres refuses to start when the process id in a lock file lives, though it be a zombie or a stranger. It
        passes over its launcher's, so ours goes there; the rest of postmaster.pid, by which it looks for shared memory
        still in use, stays. A server that a person started elsewhere, with other socket folders, is left alone.
        """
        cleared = self.account.shell('rm -f "$1" "$1.lock"', self.socket / SOCKET_NAME)
        pid_file = self.place.data / "postmaster.pid"
        lines = _lines(pid_file)
        if not lines or not lines[0].strip().isdigit():
            cleared &= self.account.shell('rm -f "$1"', pid_file)
        elif self._is_ours(lines):
            text = "\n".join([str(os.getpid()), *lines[1:]]) + "\n"
            cleared &= self.account.shell('printf %s "$2" >"$1.new" && mv "$1.new" "$1"', pid_file, text)
        if not cleared:
            raise self._failure("could not clear the files of a dead server", f"see {self.place.cluster}")

    def _is_ours(self, lines: list[str]) -> bool:
        folder = _socket_of(lines)
        return folder in ("", str(self.place.cluster)) or Path(folder).name == self._tag

    def _socket_folder(self) -> Path:
        """As the running server has noted it (its TMPDIR may be another), else ours."""
        noted = Path(_socket_of(_lines(self.place.data / "postmaster.pid")))
        return noted if noted.name == self._tag else self.socket

    def _remove_socket_folder(self) -> None:
        if self.socket.name == self._tag:
            with contextlib.suppress(OSError):  # not empty, or gone: it does no harm
                self.socket.rmdir()

    @property
    def _tag(self) -> str:
        return place.socket_tag(self.place, self.account)

    def _run(
        self, program: str, *arguments: str, limit_s: float = PROGRAM_TIMEOUT_S, keep: tuple[int, ...] = ()
    ) -> Finished:
        command = [self.binaries.bindir / program, *arguments]
        return self.account.run(command, cwd=self.place.cluster, timeout_s=limit_s, keep=keep)

    def _log_after(self, start: int) -> str:
        if not self.place.log.exists():
            return ""
        with self.place.log.open("rb") as log:
            log.seek(start)
            return log.read(LOG_BYTES_MAX).decode(errors="replace")

    def _failure(self, what: str, text: str) -> LocalPostgresError:
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        telling = [line[found.start() :] for line in lines if (found := FAILURE.search(line))]
        reason = [*telling[:1], *lines[-1:], "no reason given"][0]
        return LocalPostgresError(
            f"Postgres in {self.place.data} {what} ({reason}): read {self.place.log}, or set DATABASE_URL"
        )


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _socket_of(lines: list[str]) -> str:
    """The fifth line of postmaster.pid: the first folder with a socket."""
    return lines[4].strip() if len(lines) > 4 else ""


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
