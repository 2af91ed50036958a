"""Reads the named statements of `transactions/sql/*.sql`: `-- name: what_it_does` above each one."""

import re
import time
from collections.abc import Iterable, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

import psycopg
from sqlalchemy import Connection, TextClause, text

_LOCK_WAIT = "3s"
_LOCK_TRIES = 40
_LOCK_PAUSE_S = 0.5
_INVALID = """
select format('drop index concurrently %I.%I', n.nspname, c.relname) from pg_index i join pg_class c on c.oid =
i.indexrelid
  join pg_namespace n on n.oid = c.relnamespace where not i.indisvalid and n.nspname = 'surefoot'"""
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def run_script(connection: Connection, sql: str) -> None:
    """Run several statements as they stand: without parameters, so that `%` and `:` mean nothing special."""
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    driver.execute(sql.encode())


def run_briefly(connection: Connection, sql: str) -> None:
    """Run several statements as they stand, all or none, that change tables which are in use.

    Where one waits for a lock, all of them let go after 3 s, with what they have locked already, and try again, so that
    no queue forms behind them. Raises LockNotAvailable after 40 tries.
    """
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    driver.execute(b"savepoint briefly")
    for tries in range(_LOCK_TRIES, 0, -1):
        try:
            driver.execute(f"set local lock_timeout = '{_LOCK_WAIT}'".encode())
            driver.execute(sql.encode())
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if tries == 1:
                raise
            driver.execute(b"rollback to savepoint briefly")
            time.sleep(_LOCK_PAUSE_S)
        else:
            driver.execute(b"set local lock_timeout to default")
            return


def run_apart(connection: Connection, statements: Iterable[str]) -> None:
    """Run statements on a connection of their own, each of which commits by itself: none keeps another's lock.

    Each must be safe to repeat, for a migration that fails half-way comes again. One that waits for a lock lets others
    by after 3 s and tries again, so that no queue forms behind it; an index is built `concurrently`, which waits for no
    lock that anybody would notice, and one that was left unfinished is dropped first. Raises LockNotAvailable after 40
    tries.
    """
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as apart:
        driver = cast("psycopg.Connection[Any]", apart.connection.driver_connection)
        for (drop,) in driver.execute(_INVALID.encode()).fetchall():
            driver.execute(drop.encode())
        for statement in statements:
            wait = "0" if "concurrently" in statement else _LOCK_WAIT
            driver.execute(f"set lock_timeout = '{wait}'".encode())
            _when_locks_allow(driver, statement)


def _when_locks_allow(driver: "psycopg.Connection[Any]", statement: str) -> None:
    for tries in range(_LOCK_TRIES, 0, -1):
        try:
            driver.execute(statement.encode())
        except psycopg.errors.LockNotAvailable:
            if tries == 1:
                raise
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


def load(table: str) -> Mapping[str, TextClause]:
    """The statements of `sql/{table}.sql` by name, with `:parameters`."""
    source = files("transactions").joinpath("sql", f"{table}.sql").read_text()
    parts = _NAME.split(source)[1:]
    return MappingProxyType(
        {name: text(body.strip().rstrip(";")) for name, body in zip(parts[::2], parts[1::2], strict=True)}
    )
