"""Real parts for every test: one embedded Postgres, a database of its own for each test, the outside world."""

import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pydantic_ai import models
from sqlalchemy import make_url
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from app import wiring
from app.crashtest.place import server_folder
from app.loading import load_agents
from tests.kit import Site, World, Zygote
from transactions import Database
from transactions.local import LocalPostgres, join

models.ALLOW_MODEL_REQUESTS = False
_NUMBERS = itertools.count()
# They look at one play of the matrix, which takes minutes.
MATRIX = tuple(
    f"tests/crash/{name}.py" for name in ("test_matrix", "test_page", "test_every_commit_send_and_claim_has_failpoints")
)


class ByFile(LoadFileScheduling):
    """Tests of a file stay with one worker, and those of the matrix do, too."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "the matrix" if file.endswith(MATRIX) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return ByFile(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """The server of this test session, with the template that each test's database is cloned from."""
    with server_folder(in_memory=True) as folder, join(folder, database="template") as server:
        wiring.migrate_database(server.url, load_agents("tests.agents.scripted:AGENTS"))
        yield server
        server.leave(force=True)


@pytest.fixture(scope="session")
def clone(postgres: LocalPostgres) -> Callable[[str], AbstractContextManager[str]]:
    """Makes one more migrated, empty database, which is dropped when its block ends."""

    @contextmanager
    def made(name: str) -> Generator[str]:
        admin = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {} template template").format(sql.Identifier(name)))
            try:
                yield make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
            finally:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    return made


@pytest.fixture
def database_url(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """A migrated, empty database of this test's own."""
    with clone(f"test_{next(_NUMBERS)}") as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The database as the product opens it."""
    opened = Database(database_url)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Where this session's processes are forked from."""
    zygote = Zygote()
    yield zygote
    zygote.end()


@pytest.fixture
def world(zygote: Zygote, tmp_path: Path) -> Iterator[World]:
    """The publishing service and the mailbox, as processes of their own, with durable files."""
    with World(tmp_path, zygote) as running:
        yield running


@pytest.fixture
def site(database_url: str, world: World, zygote: Zygote, tmp_path: Path) -> Iterator[Site]:
    """A database and a world, and workers on them that end with the test."""
    with Site(database_url, world, tmp_path, zygote) as running:
        yield running
