"""Joining and leaving the server of a folder."""

import contextlib
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from transactions.local import account, binaries, locks, place
from transactions.local.cluster import INITDB_TIMEOUT_S, PORT, READY_TIMEOUT_S, Cluster
from transactions.local.errors import explained

LOCK_TIMEOUT_S = INITDB_TIMEOUT_S + 2 * READY_TIMEOUT_S  # as long as one honest holder may need
CONNECT_TIMEOUT_S = 10
JOIN_ATTEMPTS_MAX = 3


class LocalPostgres:
    """This process's membership in a folder's server, which lasts until `leave()` or the end of the process.

    `url`: what libpq, psycopg, SQLAlchemy and DBOS connect to; it stays the same over restarts of the server.
    `bindir`: Postgres' programs. The wheel and ordinary installations have psql, pg_dump and pg_ctl there; where a
    trimmed one lacks psql, any psql on PATH takes `url` as its argument.
    `data`, `log`: the data folder and the server's log file.

    When the server dies, nobody restarts it until the next `join` of its folder, in this process or another.
    """

    __slots__ = ("_cluster", "_guard", "_home", "_member", "_process", "bindir", "data", "log", "url")

    url: str
    bindir: Path
    data: Path
    log: Path

    def __init__(self, home: Path, cluster: Cluster, *, url: str, member: int) -> None:
        """For `join` only."""
        self._home = home
        self._cluster = cluster
        self._member: int | None = member
        self._process = os.getpid()
        self._guard = threading.Lock()
        self.url = url
        self.bindir = cluster.binaries.bindir
        self.data = cluster.place.data
        self.log = cluster.place.log

    def leave(self, *, force: bool = False) -> bool:
        """Stop the server if this was its last member, or in any case with `force`. Close your connections first.

        True when this call stopped a server; False when others stay, when it was not running, when this object has
        left before, and always in a forked child. A child forked after `join` counts as a member of its own while it
        lives. Raises LocalPostgresError when the server does not stop in time; takes about 0.1 s, at most minutes.
        """
        if os.getpid() != self._process:
            self._end_membership()
            return False
        with self._guard, explained(self._home):
            if self._member is None:
                return False
            if not self._cluster.place.root.exists():  # deleted: its server ends by itself
                self._end_membership()
                return False
            with locks.exclusive(self._cluster.place.lock, timeout_s=LOCK_TIMEOUT_S):
                self._end_membership()
                last = locks.try_exclusive(self._cluster.place.clients)
                try:
                    return (last is not None or force) and self._cluster.stop()
                finally:
                    if last is not None:
                        os.close(last)

    def _end_membership(self) -> None:
        """Close the descriptor and no more: unlocking it would end the membership of a forked child, or its parent."""
        member, self._member = self._member, None
        if member is not None:
            os.close(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


def join(home: Path, *, database: str = "surefoot") -> LocalPostgres:
    """Start the Postgres of the folder `home`, or join it where it runs already, and make `database` if missing.

    Any number of processes may do so at once, and any of them may be killed at any moment. The folder is made if
    missing; it must be on a local disk. The first time takes 1 to 2 s, a start 0.2 s, joining 0.05 s. It blocks: from
    a coroutine, call it in a thread. Connections are made over a Unix socket that only this user (for root: `nobody`)
    can reach, as the superuser `postgres`, without a password. Raises LocalPostgresError.
    """
    home = home.expanduser().resolve()
    with explained(home):
        who = account.current()
        programs = binaries.load(who)
        here = place.find(home, who)
        cluster = Cluster(here, who, programs, place.socket_folder(here, who))
        for _ in range(JOIN_ATTEMPTS_MAX - 1):
            with contextlib.suppress(psycopg.OperationalError):  # killed, or stopped by force, once it had answered
                return _enter(home, cluster, database)
        return _enter(home, cluster, database)


def _enter(home: Path, cluster: Cluster, database: str) -> LocalPostgres:
    with locks.exclusive(cluster.place.lock, timeout_s=LOCK_TIMEOUT_S):
        place.prepare(cluster.place, cluster.account)
        socket = cluster.ensure_running()
        member = locks.shared(cluster.place.clients)
    joined = LocalPostgres(home, cluster, url=_url(socket, database), member=member)
    try:
        _create_database(_url(socket, "postgres"), database)
    except BaseException:
        joined.leave()
        raise
    return joined


def _url(socket: Path, database: str) -> str:
    # The port is said because libpq would else take it from PGPORT.
    return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(socket), safe='')}&port={PORT}"


def _create_database(url: str, database: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        if connection.execute("select 1 from pg_database where datname = %s", [database]).fetchone() is None:
            with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):  # another's
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
