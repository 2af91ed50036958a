"""Real parts for every test: one embedded Postgres, a database of its own for each test, the outside world."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pydantic_ai import models
from sqlalchemy import make_url

from app import wiring
from app.loading import load_agents
from tests.kit import Site, World
from transactions import Database
from transactions.local import LocalPostgres, join

models.ALLOW_MODEL_REQUESTS = False
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """The server of this test session, with the template that each test's database is cloned from."""
    with join(tmp_path_factory.mktemp("postgres"), database="template") as server:
        wiring.migrate_database(server.url, load_agents(None))
        yield server
        server.leave(force=True)


@pytest.fixture
def database_url(postgres: LocalPostgres) -> Iterator[str]:
    """A migrated, empty database of this test's own."""
    name = f"test_{next(_NUMBERS)}"
    admin = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template").format(sql.Identifier(name)))
        yield make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The database as the product opens it."""
    opened = Database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """The publishing service and the mailbox, as processes of their own, with durable files."""
    with World(tmp_path) as running:
        yield running


@pytest.fixture
def site(database_url: str, world: World, tmp_path: Path) -> Iterator[Site]:
    """A database and a world, and workers on them that end with the test."""
    with Site(database_url, world, tmp_path) as running:
        yield running
