"""The operator's desk: what cannot be said of an effect is refused in one sentence, and nothing is changed by it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from app import Surefoot
from app.acting import Acting
from steps import Action, Tools, durable
from tests.bad_input.sentences import rows, sentence
from tests.forked import surefoot as command
from tests.kit import acting
from tests.races.scenes import AGENT, Scene, open_scene
from transactions import DEFAULT_TENANT, ActionId, Conflict, InvalidInput, NotFound, Principal, Role, Run

UNSTORABLE = "which Postgres cannot store: remove it."
RESULT = {"payment": 7}


class Receipt(BaseModel):
    payment: int


tools = Tools[None](id="pay")


@tools.effect(at_most_once=True)
async def publish(action: Action[None], position: int) -> Receipt:
    raise NotImplementedError


def no_deps(run: Run) -> None:
    return None


agent = durable(
    Agent(TestModel(), name=AGENT, deps_type=type(None), toolsets=[tools]), version="1", deps=no_deps, prompt=str
)


@dataclass(frozen=True, slots=True)
class Actions:
    """An effect that may be decided; one before its deadline; one whose attempts are used; one that a worker drives;
    one that was not sent; one that is settled.
    """

    url: str
    unknown: ActionId
    early: ActionId
    used: ActionId
    driven: ActionId
    unsent: ActionId
    settled: ActionId


@pytest.fixture(scope="module")
def made(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[Actions]:
    async def make(scene: Scene) -> list[ActionId]:
        ids = [
            (await scene.unknown(**changes))[1]
            for changes in (
                {},
                {"attempt_s": 3600.0},
                {"attempts_max": 1},
                {"doubted": False, "attempt_s": 3600.0},
                {},
                {},
            )
        ]
        await scene.rows("update surefoot.actions set state = 'PREPARED' where action_id = %s", ids[4])
        await scene.receive(ids[5], result=RESULT)
        return ids

    async def play(url: str) -> list[ActionId]:
        async with open_scene(url) as scene:
            return await make(scene)

    with clone("desk") as url:
        yield Actions(url, *asyncio.run(play(url)))


@pytest.fixture
async def surefoot(made: Actions) -> AsyncIterator[Surefoot]:
    opened = Surefoot(made.url, [agent])
    yield opened
    await opened.close()


@pytest.fixture
async def eve(surefoot: Surefoot) -> Acting:
    return await acting(surefoot, "eve", "operator")


@pytest.fixture
def changes_nothing(made: Actions) -> Iterator[None]:
    look = (
        "select (select count(*) from surefoot.decisions) as decisions, "
        "(select count(*) from surefoot.events) as events, (select count(*) from surefoot.receipts) as receipts, "
        "(select array_agg(state order by action_id) from surefoot.actions) as states"
    )
    before = rows(made.url, look)
    yield
    assert rows(made.url, look) == before


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize(
    ("which", "outcome", "refusal", "words"),
    [
        ("settled", "succeeded", Conflict, "is SUCCEEDED and settled: there is nothing left to decide."),
        ("settled", "failed", Conflict, "is SUCCEEDED and settled: there is nothing left to decide."),
        ("unsent", "absent", Conflict, "is PREPARED and nothing of it is unknown: there is nothing to decide."),
        ("driven", "failed", Conflict, "is on its way since .+: a worker is at it: wait for its answer."),
        ("early", "absent", Conflict, "may still arrive there until .+: look again after that, and then say absent."),
        ("used", "absent", Conflict, "All 1 attempts of .+ are used, so it cannot be sent again: say failed."),
    ],
)
async def test_what_cannot_be_said_of_it_now_is_a_conflict(
    made: Actions, eve: Acting, which: str, outcome: Any, refusal: type[Exception], words: str
) -> None:
    result = RESULT if outcome == "succeeded" else None
    with pytest.raises(refusal, match=words.replace(".+", "@").replace(".", r"\.").replace("@", ".+") + "$"):
        await eve.settle(getattr(made, which), outcome, reason="looked", result=result)


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize(
    ("outcome", "says", "words"),
    [
        ("succeeded", {"result": None}, "publish does not answer that"),
        ("succeeded", {"result": 7}, "publish does not answer that"),
        ("succeeded", {"result": {"payment": "seven"}}, r"\(payment: Input should be a valid integer, unable to parse"),
        ("succeeded", {"result": {"payment": float("nan")}}, "publish does not answer that"),
        ("failed", {"result": RESULT}, "What is failed has no result: leave it out"),
        ("failed", {"reason": None}, "Say why it failed"),
        ("failed", {"reason": "  "}, "Say why it failed"),
        ("failed", {"reason": "r" * 4001}, "The reason has 4001 characters; the limit is 4000: shorten it."),
        ("failed", {"reason": "r\0"}, UNSTORABLE),
        ("failed", {"reason": "r\ud800"}, UNSTORABLE),
        ("failed", {"evidence": {"seen": "a\0"}}, UNSTORABLE),
        ("failed", {"evidence": "\ud800"}, UNSTORABLE),
        ("failed", {"evidence": float("inf")}, "The evidence is not JSON"),
        ("failed", {"evidence": "e" * 70_000}, "The evidence is over 65536 bytes: give a reference to it instead."),
    ],
)
async def test_what_is_said_wrongly_is_refused(
    made: Actions, eve: Acting, outcome: Any, says: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        await eve.settle(made.unknown, outcome, **{"reason": "looked", **says})


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("name", ["", " ", "e" * 201])
async def test_a_name_that_is_none_is_refused(made: Actions, surefoot: Surefoot, name: str) -> None:
    nobody = surefoot.acting_for(Principal(DEFAULT_TENANT, name, frozenset({Role.OPERATOR}), authenticated=True))
    with pytest.raises(InvalidInput, match="Say who decides, in 1 to 200 characters"):
        await nobody.settle(made.unknown, "failed", reason="looked")


@pytest.mark.usefixtures("changes_nothing")
async def test_a_result_is_within_limits_where_the_tool_is_not_known_either(made: Actions) -> None:
    surefoot = Surefoot(made.url, [])
    try:
        for result, words in (("r" * 600_000, "The result is over 524288 bytes"), ("r\0", UNSTORABLE)):
            with pytest.raises(InvalidInput, match=words):
                await surefoot.settle(made.unknown, "succeeded", result=result)
    finally:
        await surefoot.close()


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize("action_id", ["nope", "a/1/0:pay", "x" * 5000])
async def test_what_nobody_has_is_not_found(surefoot: Surefoot, action_id: str) -> None:
    for call in (surefoot.action(action_id), surefoot.settle(action_id, "failed", reason="looked")):
        with pytest.raises(NotFound, match=r"^No action .+: see `surefoot actions list`\.$"):
            await call
    with pytest.raises(InvalidInput, match=UNSTORABLE):
        await surefoot.action("a\0b")


@pytest.mark.usefixtures("changes_nothing")
async def test_over_http_each_refusal_has_its_status(made: Actions, surefoot: Surefoot) -> None:
    transport = httpx.ASGITransport(app=surefoot.web)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

        async def refused(action_id: str, **body: object) -> tuple[int, str]:
            answer = await client.post(f"/actions/{action_id}/decision", json=body)
            assert list(answer.json()) == ["error"]
            return answer.status_code, answer.json()["error"]

        for action_id, body, status, words in (
            (made.settled, {"outcome": "failed", "reason": "looked"}, 409, "nothing left to decide"),
            (made.early, {"outcome": "absent"}, 409, "and then say absent"),
            (made.unknown, {"outcome": "succeeded", "result": 7}, 422, "publish does not answer that"),
            (made.unknown, {"outcome": "perhaps"}, 422, "Input should be 'succeeded', 'absent' or 'failed'"),
            (made.unknown, {"outcome": "absent", "when": 1}, 422, "Extra inputs are not permitted"),
            (made.unknown, {"outcome": "absent", "by": "eve"}, 422, "body.by: Extra inputs are not permitted"),
            (made.unknown, {}, 422, "body.outcome: Field required"),
            ("nope", {"outcome": "absent"}, 404, "No action nope"),
        ):
            code, said = await refused(action_id, **body)
            assert (code, words in said) == (status, True), said
        assert (await client.get("/actions/nope")).status_code == 404
        assert (await client.get("/actions?limit=0")).status_code == 422
        desk = (await client.get("/actions")).json()
        assert {row["action_id"] for row in desk["unknown"]} == {made.unknown, made.early, made.used}
        shown = (await client.get(f"/actions/{made.unknown}")).json()
        assert (shown["state"], shown["unknown"]["can"]) == ("UNKNOWN", ["succeeded", "absent", "failed"])


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["failed"], "Say why it failed (--reason WORDS): the agent is told."),
        (["succeeded", "--result", "{"], "--result is not JSON"),
        (["succeeded", "--result", "NaN"], "--result is not JSON (NaN is no JSON)"),
        (["succeeded", "--result", "[" * 5000 + "]" * 5000], "--result is not JSON (it is nested too deeply)"),
        (["absent", "--result", "7"], "What is absent has no result"),
    ],
)
def test_on_the_command_line_it_is_one_sentence(made: Actions, arguments: list[str], words: str) -> None:
    ended = command("actions", "settle", made.unknown, *arguments, env={"DATABASE_URL": made.url})
    assert words in sentence(ended)


class TestWhatIsSaidRightly:
    """Last, because it decides: the same calls, with what was wrong in them put right."""

    async def test_the_first_one_counts_and_the_second_is_told_whose_it_was(
        self, made: Actions, surefoot: Surefoot, eve: Acting
    ) -> None:
        joe = await acting(surefoot, "joe", "operator")
        await eve.settle(made.unknown, "succeeded", result={"payment": "7"}, evidence="in the books")
        for outcome in ("succeeded", "failed"):
            result = RESULT if outcome == "succeeded" else None
            with pytest.raises(
                Conflict, match=r"is SUCCEEDED: eve said succeeded of attempt 1 at .+ decision counts\.$"
            ):
                await joe.settle(made.unknown, outcome, reason="looked too", result=result)
        file = await surefoot.action(made.unknown)
        assert [(d["decided_by"], d["outcome"], d["evidence"]) for d in file.decisions] == [
            ("eve", "succeeded", "in the books")
        ]
        assert [(r["source"], r["result"]) for r in file.receipts] == [("person", RESULT)]
        await eve.settle(made.used, "failed", reason="r" * 4000, evidence="e" * 60_000)
        rows(
            made.url,
            "update surefoot.actions set attempt_deadline_at = now() - interval '1 s' where action_id = %s returning 1",
            made.early,
        )
        await eve.settle(made.early, "absent")
        with pytest.raises(Conflict, match=r"is PREPARED: eve said absent of attempt 1 at .+ decision counts\.$"):
            await joe.settle(made.early, "absent")
        assert (await surefoot.desk()).unknown == []
