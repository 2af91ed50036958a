"""A cluster as a hosted one is: its database belongs to a login that is no superuser, and two plain logins use it.

`people` serves the API and `hands` is a worker; nobody else can be either. The server is the embedded one, or one of
another version that is installed.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from app import wiring
from app.crashtest.place import server_folder
from app.loading import load_agents
from transactions.local import LocalPostgres, join
from transactions.local.binaries import OVERRIDE
from transactions.logins import Login

LOGINS = (Login("people", "api"), Login("hands", "worker"))
EMBEDDED = "embedded"
OLDEST = "15"
VERSIONS = (EMBEDDED, OLDEST)
_MAKE = """
create role dba login createrole;
alter database surefoot owner to dba;
create role people login;
create role hands login;
"""


@dataclass(frozen=True, slots=True)
class Estate:
    """One cluster, migrated by the owner of its database. `address`: a URL of it, of any login."""

    server: LocalPostgres
    address: str

    def url(self, login: str) -> str:
        return make_url(self.address).set(username=login).render_as_string(hide_password=False)

    def rows(self, login: str, query: str, *parameters: object) -> list[Any]:
        with psycopg.connect(self.url(login), autocommit=True) as connection:
            cursor = connection.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []


def installed(version: str) -> Path | None:
    """Where the programs of an installed Postgres of this major version are; None for the embedded one. May skip."""
    if version == EMBEDDED:
        return None
    bindir = Path(f"/usr/lib/postgresql/{version}/bin")
    if not (bindir / "initdb").exists():
        pytest.skip(f"no Postgres {version} is installed here (apt-get install postgresql-{version})")
    return bindir


@contextmanager
def running(folder: Path, bindir: Path | None = None) -> Generator[LocalPostgres]:
    """A server of these programs; of the embedded ones by default."""
    with binaries(bindir):
        server = join(folder)
    try:
        yield server
    finally:
        server.leave(force=True)


@contextmanager
def binaries(bindir: Path | None) -> Generator[None]:
    before = os.environ.pop(OVERRIDE, None)
    if bindir is not None:
        os.environ[OVERRIDE] = str(bindir)
    try:
        yield
    finally:
        os.environ.pop(OVERRIDE, None)
        if before is not None:
            os.environ[OVERRIDE] = before


def estate(version: str) -> Iterator[Estate]:
    """For a fixture: it lasts as long as that. May skip."""
    bindir = installed(version)
    with server_folder(in_memory=True) as folder, running(folder, bindir) as server:
        made = Estate(server, server.url)
        made.rows("postgres", _MAKE)
        agents = load_agents("tests.agents.scripted:AGENTS")
        wiring.migrate_database(made.url("dba"), agents, LOGINS)
        yield made
