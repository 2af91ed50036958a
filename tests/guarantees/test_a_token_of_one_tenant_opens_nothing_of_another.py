"""Two walls between tenants, row-level security and the code's own question: each alone keeps them apart."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.people import (
    LISTS,
    METHODS,
    OF_THE_DEPLOYMENT,
    ROUTES,
    A,
    B,
    Things,
    ask,
    bearer,
    methods,
    nothing_is_asked,
    prepared,
    the_code_asks_nothing,
    the_rows_are_everyones,
)
from tests.stage import Stage
from transactions import Database, Forbidden, NotFound, Principal, Role, ownership

Tokens = dict[tuple[Any, Role], str]
BEHIND_THE_CODE_ALONE = (
    "principals",
    "disable_principal",
    "enable_principal",
    "create_token",
    "tokens",
    "revoke_token",
    "pause_schedule",
    "resume_schedule",
    "remove_schedule",
)
NOTHING = ([], {"events": [], "next_after": 0})
OF_ONE_ARTIFACT = ("/artifacts/content", "/artifacts/difference")


def test_every_route_and_method_has_its_line(database_url: str) -> None:
    surefoot = Surefoot(database_url, [])
    paths = surefoot.web.openapi()["paths"]
    assert {(method.upper(), path) for path, ways in paths.items() for method in ways} == set(ROUTES)
    assert {name for name, *_ in METHODS} == methods()


# Over HTTP, at a process that serves.


def test_a_token_of_one_tenant_opens_nothing_of_another(stage: Stage) -> None:
    theirs, tokens = prepared(stage.database_url)
    _, api = stage.serve()
    assert crossings(api, theirs, tokens) == []
    assert own(api, tokens) == 1


@pytest.mark.parametrize("gone", [the_code_asks_nothing, the_rows_are_everyones])
def test_either_wall_alone_keeps_them_apart(stage: Stage, gone: Any) -> None:
    theirs, tokens = prepared(stage.database_url)
    _, api = stage.serve(broken=gone)
    assert crossings(api, theirs, tokens) == []


def test_control_without_both_walls_everything_is_seen(stage: Stage) -> None:
    theirs, tokens = prepared(stage.database_url)
    _, api = stage.serve(broken=nothing_is_asked)
    crossed = {found.partition(" as ")[0] for found in crossings(api, theirs, tokens)}
    behind = {f"{method} {path}" for (method, path), (may, _) in ROUTES.items() if may is not None}
    behind -= {f"{method} {path}" for method, path in OF_THE_DEPLOYMENT}
    named = {route for route in behind if "/schedules/" in route}  # in the tenant that acts: behind the code alone
    nothing_of_anothers = {"POST /runs", "GET /versions", "POST /retention/run"}
    assert crossed == behind - named - nothing_of_anothers


def crossings(api: httpx.Client, theirs: Things, tokens: Tokens) -> list[str]:
    """Whatever A's tokens got to know of what is B's, by any route; first by those that change nothing."""
    found: list[str] = []
    for route, (may, _) in sorted(ROUTES.items()):
        for role in Role if may is not None else ():
            answer = ask(api, route, theirs, bearer(tokens[A, role]))
            if (may is not None and role not in may) or route in OF_THE_DEPLOYMENT:
                apart = answer.status_code == 403
            elif route == ("PUT", "/schedules/{schedule}"):
                apart = answer.status_code == 204  # one of its own, of that name
            elif answer.status_code == 404:
                apart = "{" in route[1] or route[1] in OF_ONE_ARTIFACT
            elif route == ("POST", "/runs"):
                apart = answer.status_code == 202 and answer.json()["run_id"] != theirs.run_id
            elif route[1] in OF_ONE_ARTIFACT:
                apart = False
            elif "{" in route[1]:  # the database has no row of it, and the code did not ask whose it is
                apart = answer.status_code == 200 and answer.json() in NOTHING
            else:
                apart = answer.status_code == 200 and not any(name in answer.text for name in theirs.named())
            if not apart:
                found.append(f"{' '.join(route)} as {role}: {answer.status_code}")
    return found


def own(api: httpx.Client, tokens: Tokens) -> int:
    """How many runs A sees, which started one."""
    return len(api.get("/runs", headers=bearer(tokens[A, Role.VIEWER])).json())


# In Python, as `Acting` of each principal of A.


@pytest.fixture
def theirs(database_url: str) -> Things:
    return prepared(database_url)[0]


@pytest.fixture
async def surefoot(database_url: str) -> AsyncIterator[Surefoot]:
    opened = Surefoot(database_url, AGENTS)
    yield opened
    await opened.close()


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test breaks in this process is whole again after it."""
    monkeypatch.setattr(ownership, "require", ownership.require)
    monkeypatch.setattr(Database, "_transaction", Database._transaction)
    for module, loaded, _ in LISTS:
        monkeypatch.setattr(module, loaded, getattr(module, loaded))
    return


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("gone", [None, the_code_asks_nothing, the_rows_are_everyones])
def test_nor_does_python_with_either_wall_alone(database_url: str, theirs: Things, gone: Any) -> None:
    if gone is not None:
        gone()
    assert asyncio.run(python_crossings(database_url, theirs)) == []


@pytest.mark.usefixtures("mended")
def test_control_in_python_without_both_walls_everything_is_seen(database_url: str, theirs: Things) -> None:
    nothing_is_asked()
    crossed = {found.partition(" as ")[0] for found in asyncio.run(python_crossings(database_url, theirs))}
    expected = {name for name, _, across, _ in METHODS if across != "forbidden"}
    of_its_own = {"start", "set_schedule", "topics", "versions", "set_retention", "run_retention"}
    assert crossed == expected - of_its_own - set(BEHIND_THE_CODE_ALONE)


async def python_crossings(url: str, theirs: Things) -> list[str]:
    found: list[str] = []
    surefoot = Surefoot(url, AGENTS)
    for role in sorted(Role, reverse=True):  # a viewer first, who changes nothing
        who = surefoot.acting_for(Principal(A, f"{role}-of-a", frozenset({role}), authenticated=True))
        for name, may, across, call in sorted(METHODS, key=lambda line: line[1] != frozenset(Role)):
            said: object = None
            try:
                said = await call(who, theirs)
            except Forbidden:
                apart = role not in may or across == "forbidden"
            except NotFound:
                apart = role in may and across == "not found"
            except Exception as error:
                apart, said = False, error
            else:
                apart = said in ([], ()) or (across == "own" and not any(n in repr(said) for n in theirs.named()))
                apart = apart and role in may
            if not apart:
                found.append(f"{name} as {role}: {said!r:.80}")
    await surefoot.close()
    return found


def test_nothing_of_b_was_made_up(database_url: str, theirs: Things) -> None:
    """B's own principals see all of it: what A does not find is there."""

    async def look() -> None:
        surefoot = Surefoot(database_url, AGENTS)
        who = surefoot.acting_for(Principal(B, "viewer-of-b", frozenset({Role.VIEWER}), authenticated=True))
        for name, may, _, call in METHODS:
            if Role.VIEWER in may:
                seen = repr(await call(who, theirs))
                assert seen != "[]", name
        await surefoot.close()

    asyncio.run(look())
