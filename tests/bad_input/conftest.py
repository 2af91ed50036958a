"""One migrated database for all bad input: none of it leaves anything there."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.bad_input.sentences import rows


@pytest.fixture(scope="module")
def migrated(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with clone("bad_input") as url:
        yield url


@pytest.fixture
def nothing_started(migrated: str) -> Iterator[str]:
    """The database's URL; afterwards there is not one run more than before."""
    count = "select count(*) as n from surefoot.runs"
    before = rows(migrated, count)
    yield migrated
    assert rows(migrated, count) == before
