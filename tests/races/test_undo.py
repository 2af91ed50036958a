"""Undoing a run that is over: asked for at the same moment it is asked once; only undo actions pass the guards."""

import os
from functools import partial

import pytest
from sqlalchemy.exc import IntegrityError

from tests.races import invariants
from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import AGENT, BOB, LEASE_S, Scene
from transactions import DEFAULT_TENANT, ActionId, Conflict, Execution, RunState, actions, attempts, outbox, undo
from transactions.actions import EffectLimits, Ticket
from transactions.outbox import Delivery
from transactions.segments import Ending
from transactions.statements import load

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 50
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
WAYS = {"publish": undo.Way("withdraw", "number", "verify", EffectLimits(attempt_s=0.0001, attempts_max=5))}


async def test_asked_for_at_the_same_moment_it_is_asked_once(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace), lanes=1)


async def _play(scene: Scene, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    execution = await _did(scene, 2)
    for name in ("ada", "bob"):
        stage.actor(f"{name} asks", partial(_request, scene, execution, name))
    stage.actor("a relay", partial(_relayed, scene, execution))
    with pace.one(stage):
        await stage.play()
    for actor in stage.actors:
        actor.outcome()
    await _relayed(scene, execution)
    seen = await scene.seen(execution.run_id)
    invariants.consistent(seen)
    undos = [action["action_id"] for action in seen["actions"] if action["undoes"]]
    assert sorted(undos) == [f"{execution.run_id}/1/{n}:publish!undo" for n in (0, 1)]
    assert [event["kind"] for event in seen["events"]].count("run.undo_requested") == 1


async def test_without_the_lock_of_the_run_it_is_asked_twice(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "_RUNS", {**load("runs"), "lock": load("runs")["identity"]})
    caught: list[str] = []
    for seed in range(12):
        try:
            await _play(scene, Pace(), seed)
        except IntegrityError as error:
            caught.append(str(error))
        await scene.rows(
            "update surefoot.outbox_deliveries set state = 'discarded', lease_until = null, settled_at = now()"
            " where settled_at is null"
        )
    assert any("duplicate key" in why for why in caught), "this test would see no defect"


async def test_the_last_one_goes_first_and_a_failed_one_holds_nobody_back(scene: Scene) -> None:
    execution = await _did(scene, 3)
    await _request(scene, execution, "eve")
    order: list[str] = []
    for ends in ("receive", "refuse", "receive"):
        [delivery] = await _claimed(scene)
        assert await _claimed(scene) == [], "only the head of the run's undos can be claimed"
        assert delivery.action_id is not None
        order.append(delivery.action_id)
        assert await _sent(scene, delivery)
        await getattr(scene, ends)(delivery.action_id, worker_id=BOB)
    assert order == [f"{execution.run_id}/1/{n}:publish!undo" for n in (2, 1, 0)]
    found = await _request(scene, execution, "eve")
    assert [(done.standing, done.undo_id) for done in found] == [
        ("undone", order[0]),
        ("under_way", f"{order[1]}~2"),
        ("undone", order[2]),
    ]


async def test_what_was_not_sent_or_is_absent_goes_on_though_the_run_is_over(scene: Scene) -> None:
    execution = await _did(scene, 1)
    await _request(scene, execution, "eve")
    [delivery] = await _claimed(scene)
    assert delivery.action_id is not None
    assert await _sent(scene, delivery)
    async with scene.database.transaction("effect.not_sent", DEFAULT_TENANT) as session:
        await attempts.not_sent(session, delivery.action_id, attempt=1, reason="busy", worker_id=BOB)
    assert await _sent(scene, delivery, attempt=1)
    async with scene.database.transaction("effect.absent", DEFAULT_TENANT) as session:
        await attempts.doubt(session, delivery.action_id, attempt=2, reason="no answer", worker_id=BOB)
        assert await attempts.absent(session, delivery.action_id, attempt=2, worker_id=BOB)
    assert await _sent(scene, delivery, attempt=2)


@pytest.mark.parametrize("state", ["completed", "cancelled", "failed"])
async def test_an_action_that_undoes_nothing_is_not_claimed_once_the_run_is_over(scene: Scene, state: str) -> None:
    """The guard that lets an undo through looks at what it undoes."""
    execution = await _did(scene, 1)
    await _request(scene, execution, "eve")
    await scene.rows("update surefoot.actions set undoes = null")
    await scene.forced("update surefoot.runs set state = %s, reason = 'a test'", state)
    [delivery] = await _claimed(scene)
    assert not await _sent(scene, delivery)


async def _did(scene: Scene, many: int) -> Execution:
    """A run that published so often, one after the other, and is completed."""
    execution = await scene.running()
    for position in range(many):
        async with scene.database.transaction("tool.effect", execution.tenant) as session:
            wait = await scene.call(session, execution, position, "delivery")
        assert wait.action_id is not None
        await scene.receive(wait.action_id, result=position)
    await scene.end(execution, Ending(state=RunState.COMPLETED, turns=1, usage={}, output="done"))
    return execution


async def _request(scene: Scene, execution: Execution, by: str) -> list[undo.Done]:
    async with scene.database.transaction("run.undo", DEFAULT_TENANT) as session:
        return list(await undo.request(session, execution.run_id, WAYS, by=by, authenticated=False, reason="asked for"))


async def _claimed(scene: Scene) -> list[Delivery]:
    async with scene.database.all_tenants("relay.claim") as session:
        return await outbox.claim_due(
            session, consumers=[outbox.EFFECT], agents=[AGENT], worker_id=BOB, lease_s=LEASE_S, limit=9
        )


async def _sent(scene: Scene, delivery: Delivery, attempt: int = 0) -> bool:
    """Claim the action under the relay's ticket, as for one more attempt; rolled back when it may not be."""
    assert delivery.action_id is not None
    ticket = Ticket(ActionId(delivery.action_id), delivery.attempt, BOB)
    async with scene.database.transaction("effect.claim", DEFAULT_TENANT) as session:
        claimed = await actions.claim(session, ticket, attempt=attempt)
        if claimed is None:
            await session.rollback()
        return claimed is not None


async def _relayed(scene: Scene, execution: Execution) -> None:
    """Deliver what is due of this run."""
    for _ in range(3):
        for delivery in await _claimed(scene):
            assert delivery.action_id is not None
            if await _sent(scene, delivery):
                await scene.receive(delivery.action_id, worker_id=BOB)


async def test_what_another_run_relies_on_is_not_undone(scene: Scene) -> None:
    execution = await _did(scene, 1)
    other = await scene.running()
    action_id = f"{execution.run_id}/1/0:publish"
    await scene.rows(
        "insert into surefoot.action_calls (call, revision, tenant, run_id, segment, tool, key, action_id, open) "
        "values (%s, 1, 'default', %s, 0, 'publish', 'k', %s, false)",
        f"{other.run_id}/1/0:publish",
        other.run_id,
        action_id,
    )

    async def standing() -> str:
        async with scene.database.transaction("read", DEFAULT_TENANT) as session:
            ((done),) = await undo.look(session, execution.run_id, WAYS)
            return done.standing

    assert await standing() == "shared"
    async with scene.database.transaction("run.undo", DEFAULT_TENANT) as session:
        with pytest.raises(Conflict, match="nothing that can be undone"):
            await undo.request(session, execution.run_id, WAYS, by="eve", authenticated=False, reason="no")
    await scene.forced(
        "update surefoot.runs set state = 'cancelled', reason = 'no', ended_at = now() where run_id = %s", other.run_id
    )
    assert await standing() == "can_be_undone"
