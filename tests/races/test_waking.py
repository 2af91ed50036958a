"""However the statements of those who decide, answer, cancel, end and recover fall: woken once, when all is settled."""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tests.races import invariants, scenes
from tests.races.interleave import Pace, Stage, in_lanes
from tests.races.scenes import BOB, EVE, Kind, Scene, Waiting
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ApprovalId,
    Cancelling,
    Conflict,
    Event,
    Fenced,
    NotFound,
    RunId,
    RunState,
    WorkerId,
    actions,
    deciding,
    number_fenced,
    receipts,
    waits,
)
from transactions.database import fetch_one
from transactions.deciding import Said
from transactions.segments import Ending
from transactions.statements import load

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 2
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))

Act = tuple[str, Callable[[], Awaitable[object]]]


async def test_no_wakeup_is_lost_and_none_is_doubled(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), lambda seed: play(scene, pace, seed))


async def play(scene: Scene, pace: Pace, seed: int) -> None:
    """One random scene in one random order, then whatever is still open settles one by one."""
    stage = scene.stage(seed)
    kinds = stage.random.choices(
        ("approval", "delivery", "verification", "follows"), weights=(5, 3, 2, 1), k=stage.random.randint(1, 3)
    )
    waiting = await scene.one_more_about_to_wait(*kinds)
    ended = stage.random.random() < 0.5
    if ended:
        await scene.end(waiting.execution, waiting.ending())
    for name, act in _acts(scene, stage, waiting, kinds, ended=ended):
        stage.actor(name, act)
    try:
        with pace.one(stage):
            await stage.play()
        _expected(stage, pace)
        await _settles(scene, stage, waiting, kinds)
    except Exception:
        print(f"seed {seed}, waits {kinds}, {'waiting' if ended else 'about to wait'}")
        print("\n".join(stage.trace))
        print(invariants.shown(await scene.seen(waiting.run_id)))
        raise


def _acts(scene: Scene, stage: Stage, waiting: Waiting, kinds: Sequence[Kind], *, ended: bool) -> list[Act]:
    """Two to five of those who may act now."""
    acts = [act for position, kind in enumerate(kinds) for act in _settlers(scene, stage, waiting, position, kind)]
    run_id, execution = waiting.run_id, waiting.execution
    if not ended:
        acts.append(("the engine hands it over", lambda: _taken_over(scene, waiting)))
        acts.append(("the engine loses it", lambda: _lose(scene, run_id)))
    acts.append(("a recovery comes late", lambda: _recovered(scene, waiting, scenes.ADA)))
    acts.append(("a worker takes the next", lambda: _successor(scene, run_id)))
    acts.append(("somebody cancels", lambda: scene.cancel(run_id)))
    acts.append(("somebody wakes it", lambda: scene.wake(run_id)))
    chosen = stage.random.sample(acts, k=min(len(acts), stage.random.randint(2, 4)))
    if not ended:
        chosen.append(("the segment ends", lambda: scene.end(execution, waiting.ending())))
    if stage.random.random() < 0.2:
        chosen.append(("the answer to its end was lost", lambda: scene.end(execution, waiting.ending())))
    return chosen


def _settlers(scene: Scene, stage: Stage, waiting: Waiting, position: int, kind: Kind) -> list[Act]:
    """Everyone who can settle one wait, some of them twice."""
    action_id = waiting.action(position)
    if kind == "approval":

        async def time_passes() -> None:
            await scene.overdue(action_id)
            await scene.expire(action_id)

        decision = stage.random.choice(("approve", "approve", "reject"))
        return [
            (f"ada says {decision} to {position}", lambda: scene.decide(action_id, decision, "ada")),
            (f"bob approves {position}", lambda: scene.decide(action_id, "approve", "bob")),
            (f"bob rejects {position}", lambda: scene.decide(action_id, "reject", "bob")),
            (f"time passes for {position}", time_passes),
            (f"the watchdog expires {position}", lambda: scene.expire(action_id)),
        ]
    if kind in ("delivery", "verification"):
        return [
            (f"{position} is answered", lambda: scene.receive(action_id)),
            (f"{position} is found", lambda: scene.receive(action_id, source="verification", worker_id=BOB)),
            (f"{position} is refused", lambda: scene.refuse(action_id)),
        ]
    return []


async def _taken_over(scene: Scene, waiting: Waiting) -> object:
    await scene.hand_over(waiting.run_id, 0, BOB)
    return await _recovered(scene, waiting, BOB)


async def _recovered(scene: Scene, waiting: Waiting, worker_id: WorkerId) -> object:
    """One more execution of the same segment, which ends it in the same way; none if it is not the current one."""
    begun = await scene.begin(waiting.run_id, 0, worker_id)
    if begun is not None:
        return await scene.end(begun.execution, waiting.ending())
    return None


async def _lose(scene: Scene, run_id: RunId) -> object:
    await scene.lose(run_id, 0)
    return await scene.restart_lost(run_id, 0)


async def _successor(scene: Scene, run_id: RunId) -> object:
    await scene.dequeue(run_id, 1, EVE)
    return await scene.begin(run_id, 1, EVE)


def _expected(stage: Stage, pace: Pace) -> None:
    """Conflicts and fencing are answers; anything else that a transaction raised is a defect."""
    for actor in stage.actors:
        if isinstance(actor.error, Conflict | Fenced):
            pace.note(type(actor.error).__name__)
        else:
            actor.outcome()


async def _settles(scene: Scene, stage: Stage, waiting: Waiting, kinds: Sequence[Kind]) -> None:
    """The invariants hold now, and when everything has settled the run has gone on, exactly once."""
    seen = await scene.seen(waiting.run_id)
    invariants.consistent(seen)
    invariants.woken(seen, 0)
    if seen["state"] == "running" and seen["segment"] == 0:  # both who could end it were stopped
        raise AssertionError("nobody ended the segment")
    for wait in [w for w in seen["waits"] if w["segment"] == 0]:
        action_id = ActionId(wait["action_id"])
        try:
            if wait["kind"] == "approval":
                await scene.decide(action_id, "approve")
            elif wait["kind"] != "follows":
                await scene.receive(action_id)
        except Conflict:
            pass
    after = await scene.seen(waiting.run_id)
    invariants.consistent(after)
    invariants.woken(after, 0)
    assert after["segment"] == 1 or after["state"] == "cancelled"
    if after["segment"] == 1:
        assert seen["segment"] == 1 or after["state"] == "queued"


# The protection is real: the same scenes without the run row's lock, and with the waits counted before it.

_LOOK = text("select * from surefoot.runs where run_id = :run_id")
_RUNS, _WAITS = load("runs"), load("waits")


async def _wake(session: AsyncSession, run_id: RunId, *, lock_first: bool, lock_after: bool = False) -> bool:
    """`transactions.waits.wake`, word for word but for its lock."""
    run = await fetch_one(session, _RUNS["lock"] if lock_first else _LOOK, run_id=run_id)
    if run is None or run["state"] != "waiting":
        return False
    counted = await fetch_one(session, _WAITS["count_open"], run_id=run_id, segment=run["segment"])
    assert counted is not None
    if lock_after:
        await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if counted["open"]:
        return False
    raised = await fetch_one(session, _RUNS["raise_segment_if_waiting"], run_id=run_id, segment=run["segment"])
    if raised is not None:
        await waits.enqueue_next(session, run_id, n=raised["segment"], tenant=raised["tenant"])
    return raised is not None


async def _nothing(*_: object, **__: object) -> None:
    """In place of numbering, which locks the run row before waking does."""


def _without_locks(patch: pytest.MonkeyPatch, wake: Callable[..., Awaitable[bool]]) -> None:
    patch.setattr(waits, "wake", wake)
    for module in (actions, receipts, deciding):
        patch.setattr(module, "number", _nothing)
    for module in (actions, deciding):
        patch.setattr(module, "_RUNS", {**_RUNS, "lock": _LOOK})
    no_lock = text(load("actions")["lock_unsettled_of_run"].text.replace("for no key update", ""))
    patch.setattr(actions, "_ACTIONS", {**load("actions"), "lock_unsettled_of_run": no_lock})


async def _lost(scene: Scene, kind: Kind, seeds: range) -> int:
    """How many of these runs wait for ever, after the last two of their waits were settled at the same moment."""
    lost = 0
    for seed in seeds:
        waiting = await scene.one_more_about_to_wait(kind, kind)
        await scene.end(waiting.execution, waiting.ending())
        stage = scene.stage(seed)
        for position in (0, 1):
            action_id = waiting.action(position)
            settle: Callable[[], Awaitable[object]] = (
                partial(scene.receive, action_id) if kind == "delivery" else partial(scene.decide, action_id, "approve")
            )
            stage.actor(f"settles {position}", settle)
        await stage.play()
        for actor in stage.actors:
            actor.outcome()
        seen = await scene.seen(waiting.run_id)
        assert all(wait["state"] == "settled" for wait in seen["waits"])
        assert len(seen["segments"]) <= 2
        lost += len(seen["segments"]) == 1
    return lost


@pytest.mark.parametrize("kind", ["delivery", "approval"])
async def test_without_the_lock_of_the_run_wakeups_are_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: Kind, pace: Pace
) -> None:
    seeds = range(30)
    assert await _lost(scene, kind, seeds) == 0
    with monkeypatch.context() as patch:
        _without_locks(patch, partial(_wake, lock_first=False))
        unlocked = await _lost(scene, kind, seeds)
    with monkeypatch.context() as patch:
        _without_locks(patch, partial(_wake, lock_first=False, lock_after=True))
        counted_first = await _lost(scene, kind, seeds)
    with monkeypatch.context() as patch:
        _without_locks(patch, partial(_wake, lock_first=True))
        assert await _lost(scene, kind, seeds) == 0, "waking's own lock is enough"
    for what, lost in (("lost without the lock", unlocked), ("lost when counted before the lock", counted_first)):
        assert lost > 0, f"{what}: none of {len(seeds)}, so this test would see no defect"
        pace.notes[f"{what} of {len(seeds)}"] = lost


async def test_a_refusal_while_the_response_is_still_being_worked_on_denies_all_behind_it(
    scene: Scene, pace: Pace
) -> None:
    """The calls are prepared one by one, each in its own commit, while people already decide on the first ones."""
    await in_lanes(range(SEED, SEED + INTERLEAVINGS // 10), lambda seed: _play_calls(scene, pace, seed))


async def _play_calls(scene: Scene, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    execution = await scene.running()
    kinds: list[Kind] = ["approval", *stage.random.choices(("approval", "follows"), k=stage.random.randint(1, 2))]
    calls = [scene.wait(execution, position, kind) for position, kind in enumerate(kinds)]
    waiting = Waiting(execution.run_id, execution, calls)

    async def work() -> bool:
        for position, kind in enumerate(kinds):
            try:
                async with scene.database.transaction("call", execution.tenant) as session:
                    request = scene.request(execution, position, gated=kind == "approval")
                    await scene.prepare(session, execution, request)
                    await number_fenced(session, execution, Event("action.prepared"))
            except Cancelling:
                return await scene.end(execution, Ending(state=RunState.CANCELLED, turns=1, usage={}))
        return await scene.end(execution, waiting.ending())

    async def reject(position: int) -> object:
        for _ in range(6):
            try:
                return await scene.decide(waiting.action(position), "reject", "bob")
            except NotFound:
                continue  # it has not been asked for yet
        return None

    stage.actor("the segment", work)
    stage.actor("bob", partial(reject, 0))
    if kinds[1] == "approval":
        stage.actor("eve", partial(reject, 1))
    if stage.random.random() < 0.3:
        stage.actor("somebody cancels", partial(scene.cancel, execution.run_id))
    try:
        with pace.one(stage):
            await stage.play()
        _expected(stage, pace)
        await _settles(scene, stage, waiting, kinds)
    except Exception:
        print(f"seed {seed}, calls {kinds}")
        print("\n".join(stage.trace))
        print(invariants.shown(await scene.seen(waiting.run_id)))
        raise


async def test_a_refusal_may_be_as_long_as_a_reason_may_be(scene: Scene) -> None:
    """The calls behind it are told why in their own words around it, and their approvals have the same limit."""
    waiting = await scene.about_to_wait(["approval", "approval"])
    await scene.end(waiting.execution, waiting.ending())
    async with scene.database.transaction("approval.decide", DEFAULT_TENANT) as session:
        said = Said(scenes.person("ada"), "reject", "x" * 4000)
        await deciding.decide(session, ApprovalId(waiting.action(0)), said)
    seen = await scene.seen(waiting.run_id)
    assert [approval["state"] for approval in seen["approvals"]] == ["rejected", "void"]
    invariants.woken(seen, 0)


async def test_a_cancellation_misses_no_call_that_a_segment_prepared_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the lock of the actions, of which there were none, and that of the run there was time for a segment."""
    run_id = await scene.start()
    await scene.dequeue(run_id, 0, scenes.ADA)
    lock = actions.lock_unsettled
    looks: list[int] = []

    async def a_segment_follows(session: AsyncSession, run_id: RunId) -> object:
        found = await lock(session, run_id)
        looks.append(len(found))
        if looks == [0]:
            monkeypatch.setattr(actions, "lock_unsettled", lock)
            begun = await scene.begin(run_id, 0, scenes.ADA)
            assert begun is not None
            async with scene.database.transaction("calls", DEFAULT_TENANT) as own:
                waiting = [await scene.call(own, begun.execution, 0, "approval")]
            await scene.end(begun.execution, Waiting(run_id, begun.execution, waiting).ending())
            monkeypatch.setattr(actions, "lock_unsettled", a_segment_follows)
        return found

    monkeypatch.setattr(actions, "lock_unsettled", a_segment_follows)
    await scene.cancel(run_id)
    assert looks == [0, 1]
    seen = await scene.seen(run_id)
    assert (seen["state"], [a["state"] for a in seen["actions"]]) == ("cancelled", ["CANCELLED"])
    invariants.consistent(seen)
