"""Ages that are none, kinds that there are not, a login that may not: one sentence, and nothing changes."""

import math
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from app import Surefoot
from tests.bad_input.sentences import sentence
from tests.forked import surefoot
from transactions import Forbidden, InvalidInput, NotFound
from transactions.access import NO_RIGHT

NO_AGE = "is no age to keep to: give 1 to"


@pytest.mark.parametrize("keep_s", [0, 0.5, -1, 1e12, -math.inf, math.nan])
async def test_what_is_no_age_is_refused(database_url: str, keep_s: float) -> None:
    it = Surefoot(database_url, [])
    with pytest.raises(InvalidInput, match=NO_AGE):
        await it.set_retention("runs", keep_s)
    assert (await it.retention()).policies == []
    await it.close()


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"kind": "engine"}, InvalidInput, "There is no policy for 'engine': choose one of: messages, "),
        ({"kind": "runs", "agent": "x" * 201}, InvalidInput, "An agent's name has 1 to 200 characters"),
        ({"kind": "runs", "agent": ""}, InvalidInput, "An agent's name has 1 to 200 characters"),
        ({"kind": "runs", "tenant": "nowhere"}, NotFound, "No tenant 'nowhere': see `surefoot tenants list`."),
    ],
)
async def test_what_there_is_not_is_named(database_url: str, asked: dict[str, Any], kind: Any, words: str) -> None:
    it = Surefoot(database_url, [])
    with pytest.raises(kind, match=words):
        await it.set_retention(keep_s=60, **asked)
    with pytest.raises(InvalidInput, match=r"^Nothing is removed of 'keys': choose of: engine, messages, "):
        await it.run_retention(kinds=["runs", "keys"])
    assert (await it.retention()).removed == []
    await it.close()


async def test_over_http_every_refusal_is_one_sentence(database_url: str) -> None:
    it = Surefoot(database_url, [])
    transport = httpx.ASGITransport(it.web, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        for body, words in (
            ({"kind": "runs", "keep_s": 0}, NO_AGE),
            ({"kind": "runs", "keep_s": "a while"}, NO_AGE),
            ({"kind": "runs"}, "keep_s: Field required"),
            ({"kind": "runs", "keep_s": 5, "tenant": "b"}, "Extra inputs are not permitted"),
        ):
            answer = await api.put("/retention/policies", json=body)
            assert (answer.status_code, words in answer.json()["error"]) == (422, True), answer.text
        answer = await api.post("/retention/run", json={"kinds": ["everything"]})
        assert (answer.status_code, "Nothing is removed of 'everything'" in answer.json()["error"]) == (422, True)
        kept = await api.put("/retention/policies", json={"kind": "runs", "agent": "a", "keep_s": "forever"})
        assert [(row["agent"], row["keep_s"]) for row in kept.json()["policies"]] == [("a", "forever")]
        kept = await api.put("/retention/policies", json={"kind": "runs", "agent": "a", "keep_s": None})
        assert kept.json()["policies"] == []
        assert kept.json()["keep"]["engine"] == 86400
    await it.close()


async def test_a_login_that_may_not_remove_is_told_so_and_may_look(database_url: str) -> None:
    """As an API's own login that is granted less than a worker's."""
    name = "less_" + (make_url(database_url).database or "")
    login = sql.Identifier(name)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {} login").format(login))
        owner.execute(sql.SQL("grant surefoot_api, surefoot_admin to {}").format(login))
        try:
            it = Surefoot(make_url(database_url).set(username=name).render_as_string(hide_password=False), [])
            with pytest.raises(Forbidden) as told:
                await it.run_retention()
            assert str(told.value) == NO_RIGHT
            await it.set_retention("runs", 60)
            assert len((await it.retention()).policies) == 1
            await it.close()
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(login))
            owner.execute(sql.SQL("drop role {}").format(login))


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1.2.3d", "5w", "1e3s", "for ever"])
def test_at_the_command_line_an_age_has_a_unit(migrated: str, age: str) -> None:
    said = sentence(surefoot("retention", "keep", "runs", "--", age, env={"DATABASE_URL": migrated}))
    assert said.startswith(f"{age!r} is no age: write one such as 30d")
