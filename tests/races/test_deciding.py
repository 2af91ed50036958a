"""Several people, the clock, a cancellation and a worker at one approval: one decision counts, and that is sent."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from tests.races import invariants
from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import ADA, LEASE_S, Scene, person, question
from transactions import DEFAULT_TENANT, ActionId, ApprovalId, Conflict, Execution, actions, approvals, deciding
from transactions import outbox as entries
from transactions.actions import Ticket
from transactions.deciding import Decision, Said
from transactions.statements import load

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 8
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
WANTED = ("approved", "rejected", "edited", "edited after all", "expired", "cancelled", "sent", "Conflict")
EDITED = {"position": 0, "edited": True}


class Objected(Exception):
    """The claim is rolled back."""


async def test_one_decision_counts_and_only_what_it_is_of_is_sent(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace), lanes=1)
    wanted = (
        "approved",
        "rejected",
        "edited",
        "edited after all",
        "expired",
        "cancelled",
        "sent",
        "Conflict",
    )
    assert min(pace.notes[what] for what in wanted) > INTERLEAVINGS // 100, pace.notes


async def test_control_a_decision_that_does_not_look_first_counts_twice(
    scene: Scene, pace: Pace, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load("approvals")
    lock = loaded["lock"].text.replace("select a.*,", "select a.*, 'pending' as state,", 1)
    decide = loaded["decide_if_pending"].text.replace("and state = 'pending'", "")
    spoilt = {"lock": text(lock), "decide_if_pending": text(decide)}
    monkeypatch.setattr(deciding, "_APPROVALS", {**loaded, **spoilt})
    with pytest.raises((AssertionError, DatabaseError)):  # the database refuses some of it by itself
        await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace), lanes=1)


async def _play(scene: Scene, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    waiting = await scene.about_to_wait(["approval"])
    run_id, first = waiting.run_id, waiting.action(0)
    await scene.end(waiting.execution, waiting.ending())
    before = stage.random.random() < 0.4
    if before:
        await scene.decide(first, "approve", "bob")
    acts: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
        ("ada approves", partial(_says, scene, first, "ada", "approve")),
        ("bob approves", partial(_says, scene, first, "bob", "approve")),
        ("bob rejects", partial(_says, scene, first, "bob", "reject")),
        ("ada edits", partial(_edits, scene, waiting.execution, first)),
        ("time is over", partial(_expires, scene, first)),
        ("somebody cancels", partial(scene.cancel, run_id)),
        ("a worker claims it", partial(_claims, scene, waiting.execution, first)),
    ]
    played = stage.random.sample(acts, k=stage.random.randint(2, 4))
    actors = {name: stage.actor(name, act) for name, act in played}
    try:
        with pace.one(stage):
            await stage.play()
        heard: dict[str, Any] = {}
        for name, actor in actors.items():
            if isinstance(actor.error, Conflict):
                pace.note("Conflict")
            elif not isinstance(actor.error, Objected):
                heard[name] = actor.outcome()
        seen = await scene.seen(run_id)
        _judged(seen, heard, before=before, first=first)
    except BaseException:
        print(f"seed {seed}")
        print("\n".join(stage.trace))
        print(invariants.shown(await scene.seen(run_id)))
        raise
    pace.note("approved", int(bool(heard.keys() & {"ada approves", "bob approves"})))
    pace.note("rejected", int("bob rejects" in heard))
    pace.note("edited", int("ada edits" in heard))
    pace.note("edited after all", int("ada edits" in heard and before))
    pace.note("expired", int(heard.get("time is over") is True))
    pace.note("cancelled", int("somebody cancels" in heard))
    pace.note("sent", int("a worker claims it" in heard))


async def _says(scene: Scene, action_id: ActionId, name: str, decision: Decision) -> None:
    await scene.decide(action_id, decision, name)


async def _edits(scene: Scene, execution: Execution, action_id: ActionId) -> None:
    asked = question(execution, scene.request(execution, 0, gated=True))
    changed = replace(asked, arguments=EDITED, binding=EDITED)
    async with scene.database.transaction("approval.decide", DEFAULT_TENANT) as session:
        await deciding.decide(session, ApprovalId(action_id), Said(person("ada"), "approve", changed=changed))


async def _expires(scene: Scene, action_id: ActionId) -> bool:
    await scene.overdue(action_id)
    return await scene.expire(action_id)


async def _claims(scene: Scene, execution: Execution, first: ActionId) -> ActionId:
    """What the call means by now, checked in the transaction that claims it."""
    async with scene.database.transaction("effect.claim", DEFAULT_TENANT) as session:
        row = await actions.get(session, first)
        action_id = ActionId(row["revised_to"] or first)
        if not await actions.still(session, action_id, "PREPARED"):  # its row is locked first, as everywhere
            raise Objected
        now = await actions.get(session, action_id)
        ticket = await entries.take_effect(session, action_id, worker_id=ADA, lease_s=LEASE_S)
        if ticket is None or await actions.claim(session, Ticket(action_id, ticket, ADA), attempt=0) is None:
            raise Objected
        asked = question(execution, scene.request(execution, 0, gated=True))
        asked = replace(asked, action_id=action_id, arguments=now["request"], binding=now["request"])
        if await approvals.objection(session, asked) is not None:
            raise Objected
        return action_id


def _judged(seen: Mapping[str, Any], heard: Mapping[str, Any], *, before: bool, first: ActionId) -> None:
    invariants.consistent(seen)
    approved = [row for row in seen["approvals"] if row["state"] == "approved"]
    decisions = [name for name in heard if name in ("ada approves", "bob approves", "bob rejects")]
    assert len(decisions) + before <= 1, "one decision counts"
    assert not (before and heard.get("time is over")), "what was decided in time does not expire"
    sent = [row["action_id"] for row in seen["actions"] if row["state"] == "IN_FLIGHT"]
    assert sent == ([heard["a worker claims it"]] if "a worker claims it" in heard else [])
    if sent:
        assert [row["action_id"] for row in approved] == sent, "what is sent is what is approved"
    if "ada edits" in heard:
        assert sent in ([], [f"{first}~2"]), "what a person changed is not sent as it was"
    if "somebody cancels" in heard:
        assert seen["state"] in ("cancelled", "cancelling")
        assert sent or not approved, "nothing stands that nobody will do"
