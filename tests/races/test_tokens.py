"""Tokens at the same moment: first uses, the first tokens of all, and one that is revoked while it is used."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app import Surefoot
from tests.bad_input.sentences import rows
from tests.races.scenes import Scene, person
from transactions import DEFAULT_TENANT, ApprovalId, Forbidden, RunId, SurefootError, Unauthenticated, deciding
from transactions.deciding import Said

TIMES = 10


@pytest.fixture
async def surefoot(database_url: str) -> AsyncIterator[Surefoot]:
    opened = Surefoot(database_url, [])
    await opened.set_principal("ada", roles=["admin"])
    yield opened
    await opened.close()


async def test_ten_first_uses_at_once_all_open_and_are_noted(surefoot: Surefoot, database_url: str) -> None:
    token = await surefoot.create_token("ada")
    opened = await asyncio.gather(*(surefoot.authenticated(token) for _ in range(TIMES)))
    assert {acting.who.name for acting in opened} == {"ada"}
    assert rows(database_url, "select count(last_used_at) as n from surefoot.api_tokens") == [{"n": 1}]


async def test_a_use_within_the_minute_writes_nothing(surefoot: Surefoot, database_url: str) -> None:
    token = await surefoot.create_token("ada")
    used = "select xmin::text as written, last_used_at from surefoot.api_tokens"
    await surefoot.authenticated(token)
    first = rows(database_url, used)
    await surefoot.authenticated(token)
    assert rows(database_url, used) == first
    rows(database_url, "update surefoot.api_tokens set last_used_at = last_used_at - interval '2 minutes' returning 1")
    await surefoot.authenticated(token)
    assert rows(database_url, used)[0]["last_used_at"] > first[0]["last_used_at"]


async def test_ten_first_tokens_at_once_close_the_deployment_once(surefoot: Surefoot, database_url: str) -> None:
    made = await asyncio.gather(*(surefoot.create_token("ada") for _ in range(TIMES)))
    assert len(set(made)) == TIMES
    assert not await surefoot.is_open()
    since = "select (select tokens_since from surefoot.tenants where tenant = 'default') <= max(created_at) as ok"
    assert rows(database_url, f"{since} from surefoot.api_tokens") == [{"ok": True}]
    for token in made:
        assert (await surefoot.authenticated(token)).who.name == "ada"


async def test_no_other_token_is_first_beside_an_admins(surefoot: Surefoot) -> None:
    """Whoever loses is told, or comes after; in no order is there a token of a viewer and none of an admin."""
    await surefoot.set_principal("vic", roles=["viewer"])
    names = ("vic", "ada") * (TIMES // 2)
    said = await asyncio.gather(*(surefoot.create_token(name) for name in names), return_exceptions=True)
    assert all(isinstance(one, str | SurefootError) for one in said)
    assert {row["principal"] for row in await surefoot.tokens()} >= {"ada"}


async def test_a_token_that_is_revoked_while_it_is_used_opens_nothing_from_that_commit_on(surefoot: Surefoot) -> None:
    token = await surefoot.create_token("ada")
    revoked = asyncio.Event()
    late: list[str] = []

    async def use() -> None:
        while True:
            came_after = revoked.is_set()
            try:
                who = await surefoot.authenticated(token)
            except Unauthenticated:
                return
            if came_after:
                late.append(who.who.name)

    async def revoke() -> None:
        await surefoot.revoke_token(token.split("_")[1])
        revoked.set()

    async with asyncio.timeout(30):
        await asyncio.gather(*(use() for _ in range(TIMES)), revoke())
    assert late == []


async def test_a_token_that_was_not_given_a_role_does_not_decide_by_it(scene: Scene) -> None:
    """Ada is a manager; what asks is a token of hers whose scope is `approver` alone."""
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())

    async def decide(*roles: str) -> RunId:
        async with scene.database.transaction("approval.decide", DEFAULT_TENANT) as session:
            who = person("ada", *roles)
            return await deciding.decide(session, ApprovalId(waiting.action(0)), Said(who, "approve"))

    with pytest.raises(Forbidden, match="needs the approval of role:manager; ada has: approver"):
        await decide("approver")
    assert await decide("approver", "manager") == waiting.run_id
