"""Approvals that are declared or decided wrongly: what to do instead is said, and nothing is decided."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from steps import Approval, Escalation
from tests.races.scenes import Scene, open_scene, person, question
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
    [({"text": "a\0"}, "such as NUL: remove it"), ({"text": "a" * 600_000}, "are over 524288 bytes")],
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


async def asked_twice(scene: Scene) -> tuple[ApprovalId, ApprovalId]:
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    asked = question(waiting.execution, scene.request(waiting.execution, 0, gated=True))

    async def anew(session: Session) -> ApprovalId:
        return await approvals.ask(session, asked, Objection("its binding has changed"))

    async with scene.database.transaction("ask", DEFAULT_TENANT) as session:
        return ApprovalId(waiting.action(0)), await anew(session)
