"""Who may do what: a viewer looks, whoever is not known does not even that, and each role does what its line says."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.people import METHODS, OF_THE_DEPLOYMENT, ROUTES, B, Things, ask, bearer, dump, methods, prepared
from tests.stage import Stage
from transactions import DEFAULT_TENANT, Forbidden, Principal, Role, SurefootError

Clone = Callable[[str], AbstractContextManager[str]]
CHANGING = [route for route in ROUTES if route[0] != "GET"]


def test_a_viewer_changes_nothing(stage: Stage) -> None:
    theirs, tokens = prepared(stage.database_url)
    viewer = bearer(tokens[B, Role.VIEWER])
    _, api = stage.serve()
    before = dump(stage.database_url)
    assert {route: ask(api, route, theirs, viewer).status_code for route in CHANGING} == dict.fromkeys(CHANGING, 403)
    looking = [route for route in ROUTES if route[0] == "GET"]
    assert {route: ask(api, route, theirs, viewer).status_code for route in looking} == dict.fromkeys(looking, 200)
    assert dump(stage.database_url) == before


def test_control_where_no_role_is_asked_for_a_viewer_changes_everything(stage: Stage) -> None:
    theirs, tokens = prepared(stage.database_url)
    viewer = bearer(tokens[B, Role.VIEWER])
    _, api = stage.serve(broken=no_role_is_asked_for)
    for route in CHANGING:
        before = dump(stage.database_url)
        answer = ask(api, route, theirs, viewer)
        if route in OF_THE_DEPLOYMENT:
            continue  # a second one, too
        if route[1].startswith("/approvals"):
            assert "needs the approval of role:manager" in answer.json()["error"]  # and this door is a second one
            continue
        assert (answer.status_code == 403) == (route in OF_THE_DEPLOYMENT), route  # whose second door is the tenant
        assert (answer.status_code >= 400) or dump(stage.database_url) != before, route


def test_who_is_not_known_is_answered_nothing(stage: Stage, clone: Clone) -> None:
    theirs, tokens = prepared(stage.database_url)
    with clone("elsewhere") as elsewhere:
        foreign = prepared(elsewhere)[1][B, Role.ADMIN]
    strangers = {**asyncio.run(lapsed(stage.database_url)), "another deployment's": bearer(foreign)}
    good = tokens[B, Role.ADMIN]
    strangers |= {
        "none": {},
        "empty": {"Authorization": "Bearer"},
        "malformed": bearer(good + "x"),
        "with another secret": bearer(good[:-1] + ("A" if good[-1] != "A" else "E")),
        "of another scheme": {"Authorization": f"Basic {good}"},
        "twice": bearer(f"{good} {good}"),
    }
    _, api = stage.serve()
    before = dump(stage.database_url)
    for what, headers in strangers.items():
        for route, (may, _) in ROUTES.items():
            answer = ask(api, route, theirs, headers)
            assert answer.status_code == (200 if may is None else 401), (what, route)
            assert may is None or answer.headers["WWW-Authenticate"] == "Bearer"
            assert not any(name in answer.text for name in theirs.named() if name != theirs.token_id), (what, route)
    assert dump(stage.database_url) == before


async def lapsed(url: str) -> dict[str, dict[str, str]]:
    """Tokens of admins of B that were good."""
    surefoot = Surefoot(url, [])
    made: dict[str, str] = {}
    for what in ("revoked", "expired", "disabled"):
        await surefoot.set_principal(what, roles=["admin"], tenant=B)
        soon = timedelta(microseconds=1) if what == "expired" else timedelta(days=1)
        made[what] = await surefoot.create_token(what, expires=soon, tenant=B)
    await surefoot.revoke_token(made["revoked"].split("_")[1], tenant=B)
    await surefoot.disable_principal("disabled", tenant=B)
    await surefoot.close()
    return {what: bearer(token) for what, token in made.items()}


def test_each_method_has_its_line() -> None:
    assert {name for name, *_ in METHODS} == methods()


def test_each_role_may_what_its_line_says_and_nothing_else(database_url: str) -> None:
    assert asyncio.run(wrongly(database_url)) == []


def test_control_where_no_role_is_asked_for_it_is_seen(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Principal, "need", lambda *_: None)
    wrong = asyncio.run(wrongly(database_url))
    assert {said.partition(" as ")[0] for said in wrong} == {
        name for name, may, *_ in METHODS if may != frozenset(Role)
    }


async def wrongly(url: str) -> list[str]:
    """What a principal of tenant default, whose admins may everything of the deployment, was let do or refused."""
    surefoot, found = Surefoot(url, AGENTS), []
    nowhere = Things()
    for role in Role:
        who = surefoot.acting_for(Principal(DEFAULT_TENANT, "eve", frozenset({role}), authenticated=True))
        for name, may, _, call in METHODS:
            refused = False
            try:
                await call(who, nowhere)
            except Forbidden:
                refused = True
            except SurefootError:
                refused = False  # for what it was asked about
            if refused == (role in may):
                found.append(f"{name} as {role}")
    await surefoot.close()
    return found


def no_role_is_asked_for() -> None:
    def need(self: Principal, role: Role) -> None: ...

    Principal.need = need  # pyright: ignore[reportAttributeAccessIssue]
