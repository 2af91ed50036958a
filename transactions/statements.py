"""Reads the named statements of `transactions/sql/*.sql`: `-- name: what_it_does` above each one."""

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

import psycopg
from sqlalchemy import Connection, TextClause, text

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def run_script(connection: Connection, sql: str) -> None:
    """Run several statements as they stand: without parameters, so that `%` and `:` mean nothing special."""
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    driver.execute(sql.encode())


def load(table: str) -> Mapping[str, TextClause]:
    """The statements of `sql/{table}.sql` by name, with `:parameters`."""
    source = files("transactions").joinpath("sql", f"{table}.sql").read_text()
    parts = _NAME.split(source)[1:]
    return MappingProxyType(
        {name: text(body.strip().rstrip(";")) for name, body in zip(parts[::2], parts[1::2], strict=True)}
    )
