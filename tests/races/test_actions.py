"""Two workers, a person and the clock at one ledger: one claim per attempt, facts are kept, what is settled stays."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from tests.races import invariants
from tests.races.interleave import Pace, Stage, in_lanes
from tests.races.scenes import ADA, BOB, EVE, LEASE_S, Scene
from tests.races.senders import Told, Worker
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    Conflict,
    Execution,
    Fenced,
    RunId,
    RunState,
    WorkerId,
    actions,
    outbox,
    receipts,
)
from transactions.segments import Ending
from transactions.statements import load
from transactions.waits import Wait

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 6
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))

_DIES = text("update surefoot.workers set state = 'dead', ended_at = clock_timestamp() where worker_id = :worker_id")
_LIVES = text("update surefoot.workers set state = 'live', ended_at = null where worker_id = :worker_id")
_LEASE_OVER = text(
    "update surefoot.outbox_deliveries set lease_until = clock_timestamp() - interval '1 s'"
    " where entry_id = :entry_id and state = 'claimed'"
)
_DUE = text(
    "update surefoot.outbox_deliveries set due_at = clock_timestamp() where entry_id = :entry_id and state = 'pending'"
)


_CLEAR = (
    "update surefoot.outbox_deliveries set state = 'discarded', lease_until = null, settled_at = clock_timestamp()"
    " where settled_at is null"
)


async def test_one_claim_per_attempt_and_no_fact_is_lost(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace), lanes=1)


async def _play(scene: Scene, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    told = Told()
    run_id = await _set(scene, stage, told)
    try:
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            if isinstance(actor.error, Conflict | Fenced):
                pace.note(type(actor.error).__name__)
            else:
                actor.outcome()
        _judged(await scene.seen(run_id), told)
    except Exception:
        print(f"seed {seed}")
        print("\n".join(stage.trace))
        print(invariants.shown(await scene.seen(run_id)))
        raise
    finally:
        await scene.rows("update surefoot.workers set state = 'live', ended_at = null")
        await scene.rows(_CLEAR)  # relays claim whatever is due, also of runs that are over
    pace.note("claims", len(told.claims))
    pace.note("receipts", told.receipts.total())


async def test_without_the_ticket_check_others_claim_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same scenes, and a claim that does not look at whose delivery it is."""
    statements = dict(load("actions"))
    unchecked = statements["claim_prepared_with_ticket"].text
    start = unchecked.index("and exists (select 1 from surefoot.outbox_deliveries")
    statements["claim_prepared_with_ticket"] = text(unchecked[:start] + unchecked[unchecked.index("returning a.*") :])
    recorded = statements["record_attempt_if_ticket_still_held"].text
    statements["record_attempt_if_ticket_still_held"] = text(
        recorded.replace("and d.attempt = :ticket", "")
        .replace("and d.worker_id = :worker_id", "")
        .replace("and d.state = 'claimed'", "")
        .replace("and d.lease_until > clock_timestamp()", "")
    )
    monkeypatch.setattr(actions, "_ACTIONS", statements)
    caught: list[str] = []
    for seed in range(60):
        try:
            await _play(scene, Pace(), seed)
        except AssertionError as error:
            caught.append(str(error))
    assert any("claimed by" in why for why in caught), f"this test would see no defect: {caught}"


async def _set(scene: Scene, stage: Stage, told: Told) -> RunId:
    """A run with one effect to send: still running, or waiting for it; and those who meddle with it."""
    execution = await scene.running()
    gated = stage.random.random() < 0.3
    request = scene.request(execution, 0, gated=gated, attempt_s=stage.random.choice((0.0001, 0.0001, 30.0)))
    async with scene.database.transaction("calls", execution.tenant) as session:
        await scene.prepare(session, execution, request)
    if gated:
        await scene.decide(request.action_id, "approve")
    waiting = stage.random.random() < 0.6
    owns = None if waiting else execution
    ada = Worker(scene, ADA, request.action_id, owns, random.Random(stage.random.random()), told)
    bob = Worker(scene, BOB, request.action_id, None, random.Random(stage.random.random()), told)
    async with scene.database.transaction("calls", execution.tenant) as session:
        ada.hold(await outbox.take_effect(session, request.action_id, worker_id=ADA, lease_s=LEASE_S))
    match stage.random.choice(("held", "claimed", "unknown", "given back")):
        case "claimed":
            await ada.claim()
        case "unknown":
            await ada.claim()
            await ada.doubt(1)
            await ada.give_back()
        case "given back":
            await ada.give_back()
        case _:
            pass
    if waiting:
        wait = Wait("delivery", request.action_id, request.call_id, 0, None)
        await scene.end(execution, Ending(state=RunState.WAITING, turns=1, usage={}, waits=[wait]))
    for worker in (ada, bob):
        stage.actor(worker.worker_id, partial(worker.work, stage.random.randint(2, 5)))
    meddlers: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("ada is declared dead", partial(_dies, scene, ADA)),
        ("ada is declared dead now", partial(_dies, scene, ADA)),
        ("bob is declared dead", partial(_dies, scene, BOB)),
        ("a lease runs out", partial(_admin, scene, _LEASE_OVER, request.action_id)),
        ("time passes", partial(_admin, scene, _DUE, request.action_id)),
        ("somebody cancels", partial(scene.cancel, execution.run_id)),
        ("somebody cancels too", partial(scene.cancel, execution.run_id)),
        ("the segment is lost", partial(_lost, scene, execution.run_id)),
        ("a recovery", partial(_recovered, scene, execution)),
        ("the run fails", partial(scene.end, execution, Ending(RunState.FAILED, turns=1, usage={}, reason="failed"))),
    ]
    if gated:
        meddlers.append(("its approval's time is over", partial(scene.overdue, request.action_id)))
        meddlers.append(("somebody rejects it", partial(scene.decide, request.action_id, "reject")))
    for name, act in stage.random.sample(meddlers, k=stage.random.randint(0, 3)):
        stage.actor(name, act)
    return execution.run_id


async def _admin(scene: Scene, statement: Any, entry_id: str) -> None:
    async with scene.database.all_tenants("time") as session:
        await session.execute(statement, {"entry_id": entry_id})


async def _dies(scene: Scene, worker_id: WorkerId) -> None:
    async with scene.database.all_tenants("death") as session:
        await session.execute(_DIES, {"worker_id": worker_id})


async def _lost(scene: Scene, run_id: RunId) -> None:
    await scene.lose(run_id, 0)
    await scene.restart_lost(run_id, 0)


async def _recovered(scene: Scene, execution: Execution) -> None:
    await scene.hand_over(execution.run_id, 0, EVE)
    await scene.begin(execution.run_id, 0, EVE)


def _judged(seen: Mapping[str, Any], told: Told) -> None:
    """Everything that this file promises, from the rows and from the order in which they were changed."""
    invariants.consistent(seen)
    invariants.woken(seen, 0)
    [action] = seen["actions"]
    claims = [attempt for _, attempt, _, _ in told.claims]
    assert sorted(claims) == list(range(1, action["attempt"] + 1)), f"claims {claims}, attempts {action['attempt']}"
    assert [row["attempt"] for row in seen["attempts"]] == sorted(claims)
    assert not (seen["state"] == "cancelled" and action["state"] == "PREPARED")
    kept = Counter(
        (ActionId(r["action_id"]), r["attempt"], r["source"], r["worker_id"], r["result"]) for r in seen["receipts"]
    )
    assert kept == Counter(set(told.receipts)), "a receipt is lost or doubled"
    _moves_are_right(seen, told)
    kinds = Counter(event["kind"] for event in seen["events"])
    moves = Counter((m["old"], m["new"]) for m in seen["moves"] if m["thing"] == "actions" and m["old"] != m["new"])
    assert kinds["action.claimed"] == moves["PREPARED", "IN_FLIGHT"]
    assert kinds["action.unknown"] == moves["IN_FLIGHT", "UNKNOWN"]
    assert kinds["action.failed"] == sum(n for (_, new), n in moves.items() if new == "FAILED")
    back = moves["IN_FLIGHT", "PREPARED"] + moves["UNKNOWN", "PREPARED"]
    assert kinds["action.not_sent"] + kinds["action.absent"] == back
    assert kinds["action.succeeded"] == sum(n for (_, new), n in moves.items() if new == "SUCCEEDED")
    assert kinds["action.succeeded"] + kinds["receipt.kept"] == len(seen["receipts"])
    assert kinds["action.cancelled"] <= moves["PREPARED", "CANCELLED"], "cancelled, says an event, and it was not"


def _moves_are_right(seen: Mapping[str, Any], told: Told) -> None:
    """Walk through the changes in their order: who may claim, and which receipt is a contradiction."""
    state, run, holder, approval = "", "", ("", 0), "none"
    receipts = iter(seen["receipts"])
    before: list[tuple[int, str]] = []
    absent: set[int] = set()
    holders = {attempt: (worker, ticket) for _, attempt, worker, ticket in told.claims}
    for move in seen["moves"]:
        match move["thing"]:
            case "runs":
                run = move["new"]
            case "approvals":
                approval = move["new"]
            case "outbox_deliveries":
                holder = (move["worker_id"], move["attempt"]) if move["new"] == "claimed" else ("", 0)
            case "verifications":
                absent |= {move["attempt"]} if move["new"] == "absent" else set()
            case "actions":
                if (state, move["new"]) == ("PREPARED", "IN_FLIGHT"):
                    assert holder == holders[move["attempt"]], f"claimed by {holders[move['attempt']]}, ticket {holder}"
                    assert run in ("queued", "running", "waiting"), f"claimed while its run is {run}"
                    assert approval in ("none", "approved"), f"claimed while its approval is {approval}"
                state = move["new"]
            case "receipts":
                attempt, source = move["attempt"], move["new"]
                against = (
                    any(other != attempt for other, _ in before)
                    or (source == "answer" and (attempt, "answer") in before)
                    or state in ("FAILED", "CANCELLED")
                    or (source == "answer" and attempt in absent)
                )
                assert bool(next(receipts)["contradiction"]) == against, f"receipt of {attempt} after {before}, {state}"
                before.append((attempt, source))
            case _:
                pass


async def test_who_waits_for_the_answer_sees_where_it_came_from(scene: Scene) -> None:
    """A call that is made again while its verification commits: the row and its receipt are of the same moment."""
    execution = await scene.running()
    async with scene.database.transaction("calls", execution.tenant) as session:
        wait = await scene.call(session, execution, 0, "delivery")
    async with scene.database.transaction("effect.found", DEFAULT_TENANT) as verifier:
        await receipts.receive(verifier, wait.action_id, attempt=1, source="verification", result="done", worker_id=BOB)
        again = asyncio.create_task(_prepared_again(scene, execution))
        await asyncio.sleep(0.2)
        assert not again.done()
    row = await again
    assert (row["state"], row["receipt_source"]) == ("SUCCEEDED", "verification")


async def _prepared_again(scene: Scene, execution: Execution) -> Mapping[str, Any]:
    async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
        return await actions.prepare(session, execution, scene.request(execution, 0, gated=False))
