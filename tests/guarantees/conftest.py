"""Stages: a database, workers with the scripted agents, and an outside that the test holds in its hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import wiring
from app.crashtest.place import server_folder
from app.loading import load_agents
from tests.kit import World, Zygote
from tests.outside import Outside
from tests.server import Server
from tests.stage import Stage


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Outside() as running:
        yield running


@pytest.fixture
def stage(database_url: str, outside: Outside, tmp_path: Path, zygote: Zygote) -> Iterator[Stage]:
    """Without a publishing service or mailbox."""
    with Stage(database_url, World(tmp_path), outside, tmp_path, zygote) as running:
        yield running


@pytest.fixture
def stage_with_mail(
    database_url: str, world: World, outside: Outside, tmp_path: Path, zygote: Zygote
) -> Iterator[Stage]:
    with Stage(database_url, world, outside, tmp_path, zygote) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of the file's own, which it may end."""
    with server_folder(in_memory=True) as home:
        server = Server(home)
        wiring.migrate_database(server.joined.url, load_agents("tests.agents.scripted:AGENTS"))
        yield server
        server.joined.leave(force=True)
