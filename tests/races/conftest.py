"""One scene for each test, and how fast the interleavings went."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.races.driven import effects_on
from tests.races.interleave import Pace
from tests.races.scenes import Scene, open_scene

_PACES = pytest.StashKey[list[str]]()


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    """An empty database with three workers."""
    async with open_scene(database_url) as opened:
        yield opened


@pytest.fixture
async def effects(scene: Scene, database_url: str) -> AsyncIterator[Any]:
    """Makes the effect of a case, and what drives it."""
    async with effects_on(scene, database_url) as make:
        yield make


@pytest.fixture
def pace(request: pytest.FixtureRequest) -> Iterator[Pace]:
    """Counts interleavings; the rate is printed at the end of the test run."""
    counted = Pace()
    yield counted
    request.config.stash.setdefault(_PACES, []).append(f"{request.node.name}: {counted}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if paces := config.stash.get(_PACES, []):
        terminalreporter.section("interleavings")
        for line in paces:
            terminalreporter.write_line(line)
