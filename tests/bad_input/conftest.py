"""Migrated databases for all bad input, which leaves nothing there: without tokens, and with a first one."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from app import Surefoot
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


@pytest.fixture
def open_(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """A database where no token was ever made."""
    with clone("nobody_yet") as url:
        yield url


@pytest.fixture(scope="module")
def closed(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[tuple[str, str]]:
    """A database with a first token, Ada's, who is an admin; and that token."""

    async def close(url: str) -> str:
        surefoot = Surefoot(url, [])
        await surefoot.set_principal("ada", roles=["admin"])
        token = await surefoot.create_token("ada")
        await surefoot.create_tenant("acme")
        await surefoot.set_principal("amy", roles=["admin", "approver"], tenant="acme")
        await surefoot.close()
        return token

    with clone("closed") as url:
        yield url, asyncio.run(close(url))
