"""Two people, late receipts, a relay and a cancellation at one unknown effect: one decision counts, no fact is lost."""

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from tests.races import invariants
from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import ADA, BOB, Scene
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    Conflict,
    actions,
    attempts,
    desk,
    outbox,
    receipts,
)
from transactions.actions import Ticket
from transactions.desk import Outcome, Statement
from transactions.statements import load

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 10
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "absent", "failed")
_CLEAR = (
    "update surefoot.outbox_deliveries set state = 'discarded', lease_until = null, settled_at = clock_timestamp()"
    " where settled_at is null"
)


async def test_one_decision_counts_and_no_fact_is_lost(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace), lanes=1)
    assert pace.notes["decided"] == INTERLEAVINGS - pace.notes["nobody was heard"]
    assert min(pace.notes[what] for what in ("Conflict", "contradictions", "sent again", "woken")) > INTERLEAVINGS // 50


async def _play(
    scene: Scene, pace: Pace, seed: int, said: Sequence[Outcome] | None = None, only: Sequence[str] | None = None
) -> None:
    """What they say and who else meddles is drawn, unless it is given."""
    stage = scene.stage(seed)
    execution, action_id, ticket = await scene.unknown()
    if said is None:
        said = [stage.random.choice(OUTCOMES) for _ in range(2)]
    deciders = [
        stage.actor(who, partial(_settle, scene, action_id, who, outcome))
        for who, outcome in zip(("eve", "joe"), said, strict=False)
    ]
    others: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
        ("a late answer", partial(scene.receive, action_id, result="done")),
        ("another one", partial(scene.receive, action_id, worker_id=BOB, result="done twice")),
        ("somebody cancels", partial(scene.cancel, execution.run_id)),
        ("the relay rests", partial(_rest, scene, ticket)),
        ("it is looked up", partial(_found_absent, scene, action_id)),
    ]
    played = stage.random.sample(others, k=stage.random.randint(0, 3))
    if only is not None:
        played = [(name, act) for name, act in others if name in only]
    for name, act in played:
        stage.actor(name, act)
    try:
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            if isinstance(actor.error, Conflict):
                pace.note("Conflict")
            else:
                actor.outcome()
        heard = [who for actor, who in zip(deciders, said, strict=True) if actor.error is None]
        seen = await scene.seen(execution.run_id)
        _judged(seen, heard, {name for name, _ in played}, [str(a.error) for a in deciders if a.error is not None])
    except Exception:
        print(f"seed {seed}")
        print("\n".join(stage.trace))
        print(invariants.shown(await scene.seen(execution.run_id)))
        raise
    finally:
        await scene.rows(_CLEAR)
    pace.note("decided" if heard else "nobody was heard")
    pace.note("contradictions", sum(r["contradiction"] is not None for r in seen["receipts"]))
    pace.note("sent again", int(heard == ["absent"]))
    pace.note("woken", int(seen["segment"] > 0))


async def _settle(scene: Scene, action_id: ActionId, who: str, outcome: Outcome) -> None:
    result = "done" if outcome == "succeeded" else None
    async with scene.database.transaction("action.settle", DEFAULT_TENANT) as session:
        await desk.settle(session, action_id, Statement(outcome, who, reason="looked", result=result))


async def _rest(scene: Scene, ticket: Ticket) -> None:
    """What a relay does that has nothing left to ask: it must not put off what a person has just said."""
    async with scene.database.transaction("effect.back_off", DEFAULT_TENANT) as session:
        if await actions.still(session, ticket.action_id, "UNKNOWN"):
            await outbox.give_back_effect(
                session, ticket.action_id, attempt=ticket.attempt, worker_id=ADA, pause_s=3600, detail="rests"
            )


async def _found_absent(scene: Scene, action_id: ActionId) -> None:
    async with scene.database.transaction("effect.absent", DEFAULT_TENANT) as session:
        await attempts.judge(session, action_id, attempt=1, verdict="absent", evidence="seen", worker_id=BOB)
        await attempts.absent(session, action_id, attempt=1, worker_id=BOB)


def _judged(seen: Mapping[str, Any], heard: list[Outcome], played: set[str], refused: list[str]) -> None:
    invariants.consistent(seen)
    invariants.woken(seen, 0)
    [action], [delivery] = seen["actions"], seen["deliveries"]
    assert [decision["outcome"] for decision in seen["decisions"]] == heard
    assert len(heard) <= 1
    if not heard:  # then somebody else had settled it, or had proved it absent
        assert played & {"a late answer", "another one", "it is looked up"}
    for words in refused:
        assert "one decision counts" in words or "nothing" in words, words
        if heard:
            assert f"said {heard[0]} of attempt 1" in words or action["state"] == "SUCCEEDED", words
    if action["state"] == "PREPARED":
        assert delivery["state"] == "claimed" or delivery["due_at"] <= delivery["now"], "what is sent again has to wait"
    told = Counter(receipt["source"] for receipt in seen["receipts"])
    assert told["answer"] == len(played & {"a late answer", "another one"}), "a receipt is lost or doubled"
    assert told["person"] == heard.count("succeeded")
    before: list[str] = []
    decided, state, absent = "", "", False
    kept = iter(seen["receipts"])
    for move in seen["moves"]:
        match move["thing"]:
            case "decisions":
                decided = move["new"]
            case "verifications":
                absent = True
            case "actions":
                state = move["new"]
            case "receipts":
                receipt = next(kept)
                against = receipt["source"] == "answer" and (
                    "answer" in before
                    or state in ("FAILED", "CANCELLED")
                    or absent
                    or decided in ("absent", "failed")
                    or (decided == "succeeded" and receipt["result"] != "done")
                )
                assert bool(receipt["contradiction"]) == against, f"{receipt} after {decided}, {before}, {state}"
                before.append(receipt["source"])
            case _:
                pass


async def test_what_a_person_says_is_due_at_once_though_the_relay_had_put_it_off(scene: Scene) -> None:
    _, action_id, ticket = await scene.unknown()
    await _rest(scene, ticket)
    assert await scene.rows("select 1 from surefoot.outbox_deliveries where due_at > now() + interval '50 minutes'")
    await _settle(scene, action_id, "eve", "absent")
    async with scene.database.all_tenants("relay.claim") as session:
        claimed = await outbox.claim_due(
            session, consumers=[outbox.EFFECT], agents=["report"], worker_id=BOB, lease_s=60, limit=9
        )
    assert [delivery.action_id for delivery in claimed] == [action_id]


async def test_without_a_look_at_decisions_a_receipt_against_one_is_no_contradiction(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = dict(load("decisions"))
    changed["of_action"] = text(f"{changed['of_action'].text.replace('where', 'where false and')}")
    monkeypatch.setattr(receipts, "_DECISIONS", changed)
    caught: list[str] = []
    for seed in range(6):
        try:
            await _play(scene, Pace(), seed, ["succeeded"], ["another one"])
        except AssertionError as error:
            caught.append(str(error))
    assert any("after succeeded" in why for why in caught), f"this test would see no defect: {caught}"


async def test_without_the_state_a_second_decision_does_harm(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes second is heard too when nobody looks at the state after the lock was waited for."""
    changed = dict(load("decisions"))
    changed["unknown_of_action"] = text(
        "select action_id, run_id, 1 as attempt, array['succeeded', 'absent', 'failed'] as can"
        " from surefoot.actions where action_id = :action_id"
    )
    monkeypatch.setattr(desk, "_DECISIONS", changed)
    caught = 0
    for seed in range(6):
        try:
            await _play(scene, Pace(), seed, ["succeeded", "failed"], [])
        except Exception:
            caught += 1
    assert caught == 6, "this test would see no defect"


async def test_a_relay_that_rests_without_looking_puts_it_off(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unseen(*_: object) -> bool:
        return True

    monkeypatch.setattr(actions, "still", unseen)
    caught: list[str] = []
    for seed in range(12):
        try:
            await _play(scene, Pace(), seed, ["absent"], ["the relay rests"])
        except AssertionError as error:
            caught.append(str(error))
    assert any("has to wait" in why for why in caught), f"this test would see no defect: {caught}"
