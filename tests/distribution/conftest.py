"""One estate for each version of Postgres that is supported and can be had here."""

from collections.abc import Iterator

import pytest

from tests.estate import EMBEDDED, VERSIONS, Estate, estate


@pytest.fixture(scope="session")
def new() -> Iterator[Estate]:
    """On the newest version."""
    yield from estate(EMBEDDED)


@pytest.fixture(scope="session", params=VERSIONS)
def each(request: pytest.FixtureRequest) -> Iterator[Estate]:
    """On every version in turn."""
    if request.param == EMBEDDED:
        yield request.getfixturevalue("new")
    else:
        yield from estate(request.param)
