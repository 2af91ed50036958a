"""Tokens, principals and tenants: what cannot be is refused in one sentence, and a secret is kept nowhere."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from app import Surefoot
from app.acting import Acting
from tests.bad_input.sentences import rows, sentence
from tests.forked import surefoot as command
from tests.people import dump
from transactions import Conflict, Forbidden, InvalidInput, NotFound, Principal, Role, Tenant, Unauthenticated

Clone = Callable[[str], AbstractContextManager[str]]
ACME = Tenant("acme")
WHO = "Who asks? Give a token: `Authorization: Bearer sf_...`, or SUREFOOT_TOKEN=sf_... here."


@pytest.fixture
async def surefoot(closed: tuple[str, str]) -> AsyncIterator[Surefoot]:
    opened = Surefoot(closed[0], [])
    yield opened
    await opened.close()


@pytest.fixture
async def ada(surefoot: Surefoot, closed: tuple[str, str]) -> Acting:
    return await surefoot.authenticated(closed[1])


@pytest.fixture
def amy(surefoot: Surefoot) -> Acting:
    """The admin of tenant acme."""
    return surefoot.acting_for(Principal(ACME, "amy", frozenset({Role.ADMIN}), authenticated=True))


@pytest.fixture
def changes_nothing(closed: tuple[str, str]) -> Iterator[None]:
    before = dump(closed[0])
    yield
    assert dump(closed[0]) == before


# The first one.


async def test_the_first_token_is_an_admins(open_: str) -> None:
    surefoot = Surefoot(open_, [])
    await surefoot.set_principal("vic", roles=["viewer"])
    await surefoot.set_principal("ada", roles=["admin", "viewer"])
    for name, scopes in (("vic", None), ("ada", ["viewer"])):
        with pytest.raises(InvalidInput, match="The first token must be an admin's, or nobody could make another"):
            await surefoot.create_token(name, scopes=scopes)
    assert await surefoot.is_open()
    assert (await surefoot.authenticated(None)).who.name == "unauthenticated"
    await surefoot.create_token("ada")
    assert not await surefoot.is_open()
    await surefoot.create_token("vic")
    with pytest.raises(Unauthenticated):
        await surefoot.authenticated(None)
    await surefoot.close()


def test_with_the_last_token_revoked_it_stays_closed(open_: str) -> None:
    env = {"DATABASE_URL": open_}
    token = command("tokens", "create", "ada", "--role", "admin", env=env).stdout.strip()
    assert command("tokens", "revoke", token.split("_")[1], env=env).stdout == "revoked: it was ada's\n"
    assert sentence(command("runs", "list", env=env)) == WHO
    again = command("tokens", "create", "ada", env=env).stdout.strip()  # who owns the schema finds back in
    assert command("runs", "list", env={**env, "SUREFOOT_TOKEN": again}).stdout == "no runs\n"


# Once there are tokens.


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("words", ["runs list", "approvals approve x", "actions list", "outbox list", "runs cancel x"])
def test_a_command_without_a_token_is_refused(closed: tuple[str, str], words: str) -> None:
    assert sentence(command(*words.split(), env={"DATABASE_URL": closed[0]})) == WHO


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("token", ["sf_nope", "sf_0000000000000000_" + "a" * 43, "é", "x" * 10_000])
def test_a_token_that_is_none_is_refused_and_not_repeated(closed: tuple[str, str], token: str) -> None:
    for words in (("runs", "list"), ("tokens", "list")):  # the owner, too, who shows one
        said = sentence(command(*words, env={"DATABASE_URL": closed[0], "SUREFOOT_TOKEN": token}))
        assert said == "This is no token of Surefoot's: give one that `surefoot tokens create` made."


async def test_the_id_of_one_with_the_secret_of_another_opens_nothing(
    surefoot: Surefoot, ada: Acting, closed: tuple[str, str]
) -> None:
    other = await ada.create_token("ada")
    mixed = "_".join((*closed[1].split("_", 2)[:2], other.split("_", 2)[2]))
    with pytest.raises(Unauthenticated, match="This is no token of Surefoot's"):
        await surefoot.authenticated(mixed)


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize(
    ("asked", "refusal", "words"),
    [
        ({"scopes": ["operator"]}, InvalidInput, "ada has no role operator: give it first, `surefoot principals set`"),
        ({"scopes": ["nosuch"]}, InvalidInput, "ada has no role nosuch"),
        ({"scopes": []}, InvalidInput, "Give 1 to 50 roles"),
        ({"scopes": ["a b"]}, InvalidInput, "Give 1 to 50 roles of letters, digits"),
        ({"expires": timedelta(0)}, InvalidInput, "A token expires after some time, at most 366 days"),
        ({"expires": timedelta(days=-1)}, InvalidInput, "A token expires after some time, at most 366 days"),
        ({"expires": timedelta(days=367)}, InvalidInput, "A token expires after some time, at most 366 days"),
        ({"principal": "nobody"}, NotFound, "No principal 'nobody' in tenant default: make it with"),
        ({"principal": ""}, NotFound, "No principal ''"),
        ({"principal": "a\0"}, InvalidInput, "contains a NUL character"),
        ({"tenant": "nowhere"}, NotFound, "No principal 'ada' in tenant nowhere"),
    ],
)
async def test_a_token_that_cannot_be_is_refused(
    ada: Acting, asked: dict[str, Any], refusal: type[Exception], words: str
) -> None:
    with pytest.raises(refusal, match=words):
        await ada.create_token(**{"principal": "ada", **asked})


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("days", ["0", "367", "x", "-1"])
def test_days_that_cannot_be_are_a_usage_error(closed: tuple[str, str], days: str) -> None:
    ended = command("tokens", "create", "ada", "--days", days, env={"DATABASE_URL": closed[0]})
    assert (ended.returncode, "Invalid value for '--days'" in ended.stderr) == (2, True)


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("name", ["owner", "unauthenticated", "", "n" * 201, "a\nb", "a\tb", "a\x1b[0m", "a\0"])
async def test_a_name_that_cannot_be_a_principals_is_refused(ada: Acting, name: str) -> None:
    with pytest.raises(InvalidInput, match="is no name for a principal: use 1 to 200 printable characters"):
        await ada.set_principal(name, roles=["viewer"])


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("roles", [[], [""], ["a b"], ["r" * 101], [f"r{n}" for n in range(51)], ["a\0"]])
async def test_roles_that_cannot_be_are_refused(ada: Acting, roles: list[str]) -> None:
    with pytest.raises(InvalidInput, match="Give 1 to 50 roles of letters, digits"):
        await ada.set_principal("eve", roles=roles)


async def test_what_is_revoked_cannot_be_revoked_again_and_what_is_not_there_not_at_all(ada: Acting) -> None:
    token_id = (await ada.create_token("ada")).split("_")[1]
    assert await ada.revoke_token(token_id) == "ada"
    with pytest.raises(Conflict, match=f"Token {token_id} was revoked by ada before: nothing is left to do"):
        await ada.revoke_token(token_id)
    for unknown in ("nope", "", "0" * 16):
        with pytest.raises(NotFound, match=f"No token {unknown}: see `surefoot tokens list`"):
            await ada.revoke_token(unknown)
    for change in (ada.disable_principal, ada.enable_principal):
        with pytest.raises(NotFound, match="No principal 'nobody' in tenant default: see `surefoot principals list`"):
            await change("nobody")


# Tenants.


@pytest.mark.usefixtures("changes_nothing")
async def test_a_tenant_that_is_there_or_cannot_be_is_refused(ada: Acting) -> None:
    for there in (ACME, "default"):
        with pytest.raises(Conflict, match=f"Tenant {there} exists: see `surefoot tenants list`"):
            await ada.create_tenant(there)
    for bad in ("", "a b", "t" * 101, "a/b", "a\0", "é", "a\n"):
        with pytest.raises(InvalidInput, match="is no name for a tenant: use 1 to 100 letters, digits"):
            await ada.create_tenant(bad)
    with pytest.raises(NotFound, match="No tenant 'nowhere': make it with `surefoot tenants create`"):
        await ada.set_principal("eve", roles=["viewer"], tenant="nowhere")


@pytest.mark.usefixtures("changes_nothing")
async def test_an_admin_of_one_tenant_administrates_no_other(amy: Acting) -> None:
    for call in (
        amy.set_principal("eve", roles=["admin"], tenant="default"),
        amy.create_token("ada", tenant="default"),
        amy.tokens(tenant="default"),
        amy.principals(tenant="nowhere"),
        amy.disable_principal("ada", tenant="default"),
        amy.create_tenant("mine"),
        amy.tenants(),
    ):
        with pytest.raises(Forbidden, match="This is the deployment's, and amy is of tenant acme: ask its admin"):
            await call
    with pytest.raises(NotFound, match="No principal 'ada' in tenant acme"):
        await amy.create_token("ada")
    assert [row["name"] for row in await amy.principals()] == ["amy"]


# The schema's owner, and another login.


def test_the_owner_of_the_schema_administrates_without_a_token_and_decides_nothing(closed: tuple[str, str]) -> None:
    env = {"DATABASE_URL": closed[0]}
    assert command("principals", "set", "eve", "--role", "operator", env=env).returncode == 0
    assert "eve  operator  (by owner)" in command("principals", "list", env=env).stdout
    assert command("tenants", "list", env=env).stdout.startswith("acme  1 principals")
    for words in (("approvals", "approve", "x"), ("runs", "release", "x"), ("runs", "list")):
        assert sentence(command(*words, env=env)) == WHO


def test_another_login_administrates_nothing(closed: tuple[str, str]) -> None:
    with psycopg.connect(closed[0], autocommit=True) as owner:
        owner.execute("drop role if exists surefoot_test_guest")
        owner.execute("create role surefoot_test_guest login in role surefoot_api, surefoot_admin")
        try:
            guest = make_url(closed[0]).set(username="surefoot_test_guest").render_as_string(hide_password=False)
            before = dump(closed[0])
            for words in ("tokens create ada", "principals set eve --role admin", "tenants create x", "tokens list"):
                assert sentence(command(*words.split(), env={"DATABASE_URL": guest})) == WHO
            shown = command("tokens", "list", env={"DATABASE_URL": guest, "SUREFOOT_TOKEN": closed[1]})
            assert (shown.returncode, "ada" in shown.stdout) == (0, True)
            assert dump(closed[0]) == before
        finally:
            owner.execute("drop role surefoot_test_guest")


# The secret.


def test_a_token_is_shown_once_and_kept_nowhere(closed: tuple[str, str]) -> None:
    url, admin = closed
    env = {"DATABASE_URL": url, "SUREFOOT_TOKEN": admin}
    made = command("tokens", "create", "bob", "--role", "viewer", "--role", "lead", "--scope", "viewer", env=env)
    assert (made.returncode, made.stderr) == (0, "")
    _, token_id, secret = made.stdout.strip().split("_", 2)
    listed = command("tokens", "list", env=env).stdout
    assert f"{token_id}  bob, only viewer  valid  never used" in listed
    assert "made by ada at " in listed
    assert command("runs", "list", env={**env, "SUREFOOT_TOKEN": made.stdout.strip()}).stdout == "no runs\n"
    [line] = [line for line in command("tokens", "list", env=env).stdout.splitlines() if line.startswith(token_id)]
    assert "valid  last used " in line
    kept = str(dump(url)) + "".join(str(row) for row in rows(url, "select * from dbos.workflow_status"))
    for hidden in (secret, admin.split("_", 2)[2]):
        assert hidden not in kept
        assert hidden not in listed
    assert token_id in kept
    used = "select secret_hash, last_used_at is not null as used from surefoot.api_tokens where token_id = %s"
    [row] = rows(url, used, token_id)
    assert (len(row["secret_hash"]), row["used"]) == (64, True)


def test_a_token_may_what_its_scope_says_and_what_its_principal_still_has(closed: tuple[str, str]) -> None:
    env = {"DATABASE_URL": closed[0], "SUREFOOT_TOKEN": closed[1]}
    token = command("tokens", "create", "zoe", "--role", "operator", "--role", "lead", "--scope", "lead", env=env)
    hers = {**env, "SUREFOOT_TOKEN": token.stdout.strip()}
    said = sentence(command("runs", "list", env=hers))
    assert said == "This needs the role viewer, and zoe has: lead. Ask an admin for it."
    command("principals", "set", "zoe", "--role", "operator", env=env)
    assert sentence(command("runs", "list", env=hers)) == (
        "This needs the role viewer, and zoe has: none. Ask an admin for it."
    )


def test_a_disabled_principal_is_told_so_until_it_is_enabled(closed: tuple[str, str]) -> None:
    env = {"DATABASE_URL": closed[0], "SUREFOOT_TOKEN": closed[1]}
    token = command("tokens", "create", "dan", "--role", "viewer", env=env).stdout.strip()
    assert command("principals", "disable", "dan", env=env).stdout == "disabled dan\n"
    assert sentence(command("runs", "list", env={**env, "SUREFOOT_TOKEN": token})) == "dan is disabled: ask an admin."
    assert "dan  disabled" in command("tokens", "list", env=env).stdout
    assert "dan  viewer  (by ada)  disabled since " in command("principals", "list", env=env).stdout
    assert command("principals", "enable", "dan", env=env).stdout == "enabled dan\n"
    assert command("runs", "list", env={**env, "SUREFOOT_TOKEN": token}).stdout == "no runs\n"


async def test_an_application_acts_as_who_is_there_and_decides_as_nobody_else(surefoot: Surefoot) -> None:
    with pytest.raises(NotFound, match="No principal 'nobody' in tenant default"):
        await surefoot.acting_as("nobody")
    with pytest.raises(NotFound, match="No principal 'ada' in tenant acme"):
        await surefoot.acting_as("ada", tenant=ACME)
    await surefoot.set_principal("gone", roles=["viewer"])
    await surefoot.disable_principal("gone")
    with pytest.raises(Forbidden, match=r"^gone was disabled at .+: ask an admin\.$"):
        await surefoot.acting_as("gone")
