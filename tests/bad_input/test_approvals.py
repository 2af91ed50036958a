"""Approvals that are declared or decided wrongly: what to do instead is said, and nothing is decided."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from steps import Approval, Escalation
from tests.bad_input.sentences import sentence
from tests.forked import surefoot as command
from tests.races.scenes import Scene, open_scene, person, question
from tests.races.test_subscriptions import announce
from transactions import DEFAULT_TENANT, ApprovalId, Conflict, InvalidInput, Session, approvals, deciding
from transactions.approvals import Objection
from transactions.deciding import Said

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"by": ()}, 'nobody could decide: name at least one, such as "role:manager"'),
        ({"by": "manager"}, 'say "role:NAME" or "user:NAME"'),
        ({"by": ("role:manager", "team:a")}, 'say "role:NAME" or "user:NAME"'),
        ({"by": "role:"}, 'say "role:NAME" or "user:NAME"'),
        ({"by": "role:a", "people_min": 0}, "give 1 to 10"),
        ({"by": "role:a", "expires": timedelta(0)}, "give a positive time"),
        ({"by": "role:a", "remind": timedelta(seconds=1)}, "give at least a minute"),
        ({"by": "role:a", "policy": "large ones"}, "give the rule itself, too: when=FUNCTION"),
        ({"by": "role:a", "when": lambda tx: True}, "name the rule for people too"),
        ({"by": "role:a", "expires": HOUR, "escalate": Escalation(HOUR, "role:b")}, "before the question expires"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused_where_they_are_declared(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Approval[Any, []](**terms)


def test_an_escalation_to_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody could decide"):
        Escalation(HOUR, ())


def test_a_decision_on_what_is_superseded_says_by_what(database_url: str) -> None:
    """Whoever looked at a version that is no longer asked about decides nothing by it."""

    async def decided() -> None:
        async with open_scene(database_url) as scene:
            old, new = await asked_twice(scene)
            with pytest.raises(Conflict, match=f"{old} is superseded by {new}, because .+: look at that one"):
                await scene.decide(old, "approve")
            await scene.decide(new, "approve")
            with pytest.raises(Conflict, match=f"{new} is already approved by ada: one decision counts"):
                await scene.decide(new, "reject", "bob")

    asyncio.run(decided())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"text": "a\0"}, "contains a NUL character"), ({"text": "a" * 600_000}, "is over 524288 bytes")],
)
def test_arguments_that_cannot_be_kept_are_refused_and_nothing_is_decided(
    database_url: str, arguments: dict[str, Any], words: str
) -> None:
    async def decided() -> None:
        async with open_scene(database_url) as scene:
            waiting = await scene.about_to_wait(["approval"])
            await scene.end(waiting.execution, waiting.ending())
            asked = question(waiting.execution, scene.request(waiting.execution, 0, gated=True))
            said = Said(person("ada"), "approve", changed=replace(asked, arguments=arguments))
            with pytest.raises(InvalidInput, match=words):
                async with scene.database.transaction("approval.decide", DEFAULT_TENANT) as session:
                    await deciding.decide(session, ApprovalId(waiting.action(0)), said)
            assert [row["state"] for row in (await scene.seen(waiting.run_id))["approvals"]] == ["pending"]

    asyncio.run(decided())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("null", "--changes null changes nothing: leave it out"),
        ('{"amount": NaN}', "--changes is not JSON (NaN is no JSON)"),
        ("[" * 5000 + "]" * 5000, "--changes is not JSON (it is nested too deeply)"),
    ],
    ids=["null", "NaN", "deep"],
)
def test_changes_that_are_none_decide_nothing(changes: str, words: str) -> None:
    """Said before anything is asked of a database."""
    assert words in sentence(command("approvals", "approve", "x", "--changes", changes))


def test_a_large_request_is_asked_about_though_somebody_listens(database_url: str) -> None:
    """What is bound is too large for an entry: whoever hears of it looks at the approval itself."""

    async def asked() -> None:
        async with open_scene(database_url) as scene:
            await announce(scene, "chat", "approval.requested")
            execution = await scene.running()
            request = scene.request(execution, 0, gated=False)
            async with scene.database.transaction("calls", DEFAULT_TENANT) as session:
                await scene.prepare(session, execution, request)
                large: dict[str, JsonValue] = {"text": "x" * 300_000}
                await approvals.ask(session, replace(question(execution, request), arguments=large, binding=large))
            [(payload,)] = await scene.rows(
                "select payload from surefoot.outbox_entries where topic = 'approval.requested'"
            )
            assert payload["binding"] is None
            assert payload["tool"] == request.tool

    asyncio.run(asked())


async def asked_twice(scene: Scene) -> tuple[ApprovalId, ApprovalId]:
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    asked = question(waiting.execution, scene.request(waiting.execution, 0, gated=True))

    async def anew(session: Session) -> ApprovalId:
        return await approvals.ask(session, asked, Objection("its binding has changed"))

    async with scene.database.transaction("ask", DEFAULT_TENANT) as session:
        return ApprovalId(waiting.action(0)), await anew(session)
