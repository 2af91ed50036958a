"""The API works behind a pooler that hands a connection on after each transaction; a worker does not begin to."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.bad_input.sentences import sentence
from tests.distribution.apart import open_again, report
from tests.distribution.bouncer import pooled
from tests.estate import Estate
from tests.forked import surefoot
from tests.kit import World, Zygote
from transactions import API, DEFAULT_TENANT, Access, Database
from transactions.access import hands_connections_on


@pytest.fixture
def behind(new: Estate) -> Iterator[Estate]:
    with pooled(new) as estate:
        yield estate


def test_the_api_behind_it_and_a_worker_beside_it_make_a_whole_report(
    new: Estate, behind: Estate, world: World, tmp_path: Path, zygote: Zygote
) -> None:
    try:
        report(new, behind.url("people"), world, tmp_path, zygote)
    finally:
        open_again(new)


def test_a_worker_behind_it_is_told_so(behind: Estate) -> None:
    assert sentence(surefoot("worker", env={"DATABASE_URL": behind.url("hands")})) == (
        "A worker cannot work through this pooler: it hands a connection on after each transaction, and LISTEN, locks "
        "and leases need one that stays. Set DATABASE_URL of workers to the database itself; the API may stay behind "
        "the pooler."
    )


async def test_a_pooler_is_known_by_whose_sessions_answer(new: Estate, behind: Estate) -> None:
    assert await hands_connections_on(behind.url("hands"))
    assert not await hands_connections_on(new.url("hands"))
    with pooled(new, mode="session", size=5) as by_session:
        assert not await hands_connections_on(by_session.url("hands"))


async def test_nothing_of_one_transaction_is_left_for_the_next_one(behind: Estate) -> None:
    database = Database(behind.url("people"), access=API)
    try:
        async with database.transaction("read", DEFAULT_TENANT) as session:
            mine = (await session.execute(_LEFT)).one()
            assert mine == ("surefoot_api", DEFAULT_TENANT, "10s")
        engine = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            for _ in range(4):
                assert tuple((await connection.execute(_LEFT)).one()) == ("none", "", "0")
    finally:
        await database.close()


_LEFT = text(
    "select current_setting('role'), coalesce(current_setting('surefoot.tenant', true), ''), "
    "current_setting('idle_in_transaction_session_timeout')"
)


async def test_control_with_prepared_statements_it_fails_behind_it(behind: Estate) -> None:
    await many_at_once(behind.url("people"), API)
    with pytest.raises(DBAPIError, match="prepared statement"):
        await many_at_once(behind.url("people"), replace(API, prepares=True))


async def test_control_with_startup_options_it_refuses_the_connection(behind: Estate) -> None:
    with pytest.raises(DBAPIError, match="startup parameter"):
        await many_at_once(behind.url("people"), replace(API, options=True))


async def many_at_once(url: str, access: Access) -> None:
    database = Database(url, access=access)

    async def ask() -> None:
        for _ in range(20):
            await database.query(DEFAULT_TENANT, "select count(*) from surefoot.run_status")

    try:
        answers = await asyncio.gather(*(ask() for _ in range(8)), return_exceptions=True)  # all of them are over
        for error in answers:
            if error is not None:
                raise error
    finally:
        await database.close()
