"""Two runs at one business key: one action, one owner, and both go on when it settles, however the statements fall."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from tests.races import invariants
from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import ADA, LEASE_S, Scene
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ActionState,
    Cancelling,
    Conflict,
    EntryId,
    Event,
    Execution,
    Fenced,
    RunState,
    Tenant,
    actions,
    attempts,
    keys,
    number_fenced,
    outbox,
    waits,
)
from transactions.actions import Request, Ticket
from transactions.segments import Ending
from transactions.statements import load
from transactions.waits import Wait

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 12
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
STATES = "select action_id, run_id, state, attempt from surefoot.actions where action_id like %s order by action_id"


async def test_two_runs_at_one_key_have_one_action_and_both_are_woken(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace))


async def _play(scene: Scene, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    key = f"key {seed}"
    runs = [await scene.running(), await scene.running()]
    for execution in runs:
        stage.actor(f"{execution.run_id[:4]} asks", partial(_ask_and_end, scene, execution, key))
    acts = [
        ("it is answered", partial(_settle, scene, key, "answered")),
        ("it is answered too", partial(_settle, scene, key, "answered")),
        ("it is refused", partial(_settle, scene, key, "refused")),
        ("a sweep", partial(sweep, scene)),
        ("another sweep", partial(sweep, scene)),
        ("somebody cancels the first", partial(scene.cancel, runs[0].run_id)),
        ("somebody cancels the second", partial(scene.cancel, runs[1].run_id)),
    ]
    chosen = stage.random.sample(acts, k=stage.random.randint(1, 4))
    for name, act in chosen:
        stage.actor(name, act)
    try:
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            if isinstance(actor.error, Conflict | Fenced):
                pace.note(type(actor.error).__name__)
            else:
                actor.outcome()
        await sweep(scene)
        for execution in runs:
            await _woken(scene, execution, key)
        for row in await scene.rows(STATES, f"default/publish:{key}%"):
            if not ActionState(row[2]).settled:
                await scene.receive(row[0], attempt=row[3])
        await sweep(scene)
        for execution in runs:
            seen = await _woken(scene, execution, key)
            assert seen["segment"] == 1 or seen["state"] == "cancelled", f"{execution.run_id} waits for ever"
    except Exception:
        print(f"seed {seed}")
        print("\n".join(stage.trace))
        for execution in runs:
            print(invariants.shown(await scene.seen(execution.run_id)))
        raise


async def _ask_and_end(scene: Scene, execution: Execution, key: str) -> None:
    try:
        action_id = await _ask(scene, execution, key)
    except Cancelling:
        await scene.end(execution, Ending(state=RunState.CANCELLED, turns=1, usage={}))
        return
    await _end(scene, execution, action_id)


async def _ask(scene: Scene, execution: Execution, key: str) -> ActionId:
    """What a tool does: prepare, and claim what is owned."""
    async with scene.database.transaction("tool.effect", execution.tenant) as session:
        meant = await keys.prepare(session, execution, _request(execution), key=lambda: key)
        action_id = ActionId(meant.row["action_id"])
        if meant.owned:
            await _put(session, execution, action_id)
            taken = await outbox.take_effect(session, action_id, worker_id=ADA, lease_s=LEASE_S)
            assert taken is not None
            ticket = Ticket(action_id, taken, ADA, execution)
            assert await actions.claim(session, ticket, attempt=0) is not None
        await number_fenced(session, execution, Event("action.prepared", {"action": action_id}))
    return action_id


async def _end(scene: Scene, execution: Execution, action_id: ActionId) -> None:
    request = _request(execution)
    wait = Wait("delivery", action_id, request.call_id, 0, None, call=request.action_id)
    await scene.end(execution, Ending(state=RunState.WAITING, turns=1, usage={}, waits=[wait]))


def _request(execution: Execution, **changes: Any) -> Request:
    return replace(Scene.request(execution, 0, gated=False), **{"arguments": {"month": "2013-08"}, **changes})


async def _put(session: Any, execution: Execution, action_id: ActionId) -> None:
    await outbox.put(
        session,
        entry_id=EntryId(action_id),
        tenant=execution.tenant,
        run_id=execution.run_id,
        action_id=action_id,
        topic=outbox.EFFECT,
        payload=None,
        consumers=(outbox.EFFECT,),
        parked=True,
    )


async def _settle(scene: Scene, key: str, how: str) -> None:
    for row in await scene.rows(STATES, f"default/publish:{key}%"):
        if how == "answered":
            await scene.receive(row[0], attempt=max(1, row[3]))
        else:
            await scene.refuse(row[0], attempt=row[3])


async def sweep(scene: Scene) -> None:
    async with scene.database.all_tenants("watchdog.look") as session:
        found = await keys.sharers_of_settled(session, limit=9)
    for sharer in found:
        async with scene.database.transaction("watchdog.share", Tenant(sharer["tenant"])) as session:
            await keys.wake_sharer(session, sharer)


async def _woken(scene: Scene, execution: Execution, key: str) -> Mapping[str, Any]:
    """Everything that is true of a run that waits for an action, its own or another's."""
    seen = await scene.seen(execution.run_id)
    invariants.consistent(seen)
    found = await scene.rows(STATES, f"default/publish:{key}%")
    states = {row[0]: row[2] for row in found}
    live = [action_id for action_id, state in states.items() if state not in ("FAILED", "CANCELLED")]
    assert len(live) <= 1, f"one key, and {states}"
    for wait in seen["waits"]:
        is_over = ActionState(states[wait["action_id"]]).settled
        assert wait["state"] == ("settled" if is_over or seen["state"] == "cancelled" else "open"), wait
    successors = [segment for segment in seen["segments"] if segment["n"] > 0]
    waits_still = any(wait["state"] == "open" for wait in seen["waits"])
    if seen["state"] != "cancelled":
        assert len(successors) == (0 if waits_still else 1), f"woken {len(successors)} times"
    return seen


async def test_who_shares_is_woken_though_the_action_settles_while_its_segment_ends(scene: Scene) -> None:
    assert await _settled_while_it_ends(scene) == "queued"


async def test_without_the_lock_of_its_run_it_is_not_woken(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    look = text("select * from surefoot.runs where run_id = :run_id")
    monkeypatch.setattr(keys, "_RUNS", {**load("runs"), "lock": look})
    assert await _settled_while_it_ends(scene) == "waiting", "this test would see no defect"


async def _settled_while_it_ends(scene: Scene) -> str:
    """Its segment has seen that the action is open; then that settles, the sweep comes, and only then the wait is."""
    first, second = await scene.running(), await scene.running()
    await _ask_and_end(scene, first, "k")
    action_id = await _ask(scene, second, "k")
    insert = waits.insert
    others: list[asyncio.Task[None]] = []

    async def settles() -> None:
        await scene.receive(action_id)
        await sweep(scene)

    async def late(*args: Any, **wait: Any) -> None:
        others.append(asyncio.create_task(settles()))
        await asyncio.sleep(0.3)  # it ends, or waits for the lock of this run
        await insert(*args, **wait)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waits, "insert", late)
        await _end(scene, second, action_id)
    await asyncio.gather(*others)
    await sweep(scene)
    return (await scene.seen(second.run_id))["state"]


async def test_another_request_and_a_key_that_is_free_again(scene: Scene) -> None:
    first, second = await scene.running(), await scene.running()
    await _ask_and_end(scene, first, "k")
    other = _request(second, arguments={"month": "2013-09"})

    async def asked(request: Request) -> keys.Meant:
        async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
            meant = await keys.prepare(session, second, request, key=lambda: "k")
            if meant.owned:
                await _put(session, second, ActionId(meant.row["action_id"]))
            return meant

    with pytest.raises(actions.RequestChanged, match=r"default/publish:k is recorded .+; now publish, .+ first asked"):
        await asked(other)
    assert await scene.rows("select 1 from surefoot.action_calls where run_id = %s", second.run_id) == []
    await scene.refuse(ActionId("default/publish:k"))
    meant = await asked(other)  # nothing happened under this key, so it may be asked for anything
    assert (meant.row["action_id"], meant.owned, meant.new) == ("default/publish:k~2", True, True)
    meant = await asked(other)
    assert (meant.row["action_id"], meant.owned, meant.new) == ("default/publish:k~2", True, False)


async def test_a_call_keeps_the_action_it_meant_when_that_fails_and_takes_the_next_when_it_is_cancelled(
    scene: Scene,
) -> None:
    async def again(execution: Execution) -> tuple[str, bool]:
        async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
            meant = await keys.prepare(session, execution, _request(execution), key=lambda: "changed meanwhile")
        return meant.row["action_id"], meant.owned

    for key, ends in (("failed", scene.refuse), ("cancelled", _withdrawn(scene))):
        executions = [await scene.running() for _ in range(3)]
        for execution in executions[:2]:
            await _ask(scene, execution, key)
        action_id = ActionId(f"default/publish:{key}")
        await ends(action_id)
        assert await again(executions[0]) == (action_id, True)
        next_id = action_id if key == "failed" else f"{action_id}~2"
        assert await again(executions[1]) == (next_id, key == "cancelled")
        assert await again(executions[1]) == (next_id, key == "cancelled")
        assert await _ask(scene, executions[2], key) == f"{action_id}~2"


def _withdrawn(scene: Scene) -> Any:
    async def withdrawn(action_id: ActionId) -> None:
        async with scene.database.transaction("effect.withdraw", DEFAULT_TENANT) as session:
            await attempts.not_sent(session, action_id, attempt=1, reason="busy", worker_id=ADA)
            assert await actions.withdraw(session, action_id, reason="a test", worker_id=ADA)

    return withdrawn


async def test_what_was_undone_may_be_done_again_and_not_while_it_is_being_undone(scene: Scene) -> None:
    first, second = await scene.running(), await scene.running()
    await _ask_and_end(scene, first, "k")
    await scene.receive(ActionId("default/publish:k"))
    await scene.rows(
        "insert into surefoot.actions select (jsonb_populate_record(a, jsonb_build_object('action_id', a.action_id || "
        "'!undo', 'undoes', a.action_id, 'state', 'PREPARED', 'settled_at', null))).* from surefoot.actions a"
    )

    async def asked() -> str:
        async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
            return (await keys.prepare(session, second, _request(second), key=lambda: "k")).row["action_id"]

    with pytest.raises(
        Conflict, match=r"default/publish:k is just being undone \(default/publish:k!undo is PREPARED\)"
    ):
        await asked()
    await scene.rows(
        "update surefoot.actions set state = 'SUCCEEDED', result = 'null', settled_at = now() where undoes is not null"
    )
    assert await asked() == "default/publish:k~2"


async def test_what_the_model_was_asked_to_correct_does_not_keep_its_run_waiting(scene: Scene) -> None:
    """A gated call may be answered with a retry: its action stays prepared, and the model asks for the key anew."""
    execution = await scene.running()
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        await keys.prepare(session, execution, _request(execution), key=lambda: "k")
        await _put(session, execution, ActionId("default/publish:k"))
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        again = _request(execution, turn=2, action_id=ActionId(f"{execution.run_id}/2/0:publish"), arguments={"n": 2})
        meant = await keys.prepare(session, execution, again, key=lambda: "k")
    assert (meant.row["action_id"], meant.owned) == ("default/publish:k~2", True)
    assert [tuple(row)[2] for row in await scene.rows(STATES, "default/publish:k%")] == ["CANCELLED", "PREPARED"]
