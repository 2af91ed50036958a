"""Stages: a database, workers with the scripted agents, and an outside that the test holds in its hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import World, Zygote
from tests.outside import Outside
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
