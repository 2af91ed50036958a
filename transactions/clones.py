"""Databases cloned from a template, for tests that need one each. Needs a login that may create databases."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import make_url

CONNECT_TIMEOUT_S = 10


def url_of(server_url: str, name: str) -> str:
    """The URL of database `name` on the same server."""
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


@asynccontextmanager
async def clone(server_url: str, name: str, *, template: str) -> AsyncGenerator[str]:
    """The URL of a new database, a copy of `template` (nobody may be connected to that); dropped at the end.

    `template0` makes an empty one. 0.2 to 0.5 s. Raises psycopg.Error when it may not be created.
    """
    await _execute(
        server_url, sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
    )
    try:
        yield url_of(server_url, name)
    finally:
        await _execute(server_url, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


async def address(url: str) -> tuple[str, int]:
    """Host (or the folder of the Unix socket) and port of the server that the driver finds by this URL."""
    async with await _connect(url) as connection:
        return connection.info.host, connection.info.port


def rerouted(url: str, host: str, port: int) -> str:
    """The same URL by way of another address; a `host` that is a folder is that of a Unix socket."""
    bare = make_url(url).difference_update_query(["host", "hostaddr", "port"])
    if host.startswith("/"):
        found = bare.set(host=None, port=None).update_query_dict({"host": host, "port": str(port)})
    else:
        found = bare.set(host=host, port=port)
    return found.render_as_string(hide_password=False)


async def _execute(url: str, statement: sql.Composed) -> None:
    async with await _connect(url) as connection:
        await connection.execute(statement)


async def _connect(url: str) -> psycopg.AsyncConnection[Any]:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return await psycopg.AsyncConnection.connect(plain, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
