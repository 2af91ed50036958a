"""What waits for its turn where several versions have workers, and what people make of it meanwhile."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.races.scenes import ADA, AGENT, VERSION, Scene, register
from tests.races.test_queue import limit, look, over, place, slots, start
from tests.races.test_versions import NEW, NEW_WORKER, NEWER_WORKER, deploy, does, engine_version, stop
from transactions import DEFAULT_TENANT, QueueFull, RunId, RunState, admitting, runs, steering, versions
from transactions.segments import Ending


async def crowded(scene: Scene) -> tuple[RunId, RunId, RunId]:
    """A worker of each of two versions, with one slot. Of three runs that only the old one can read two take its turns,
    and one waits; then a run is started.
    """
    executions = [await scene.running() for _ in range(3)]
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(2,))
    await scene.rows(
        "update surefoot.workers set slots = case when worker_id in (%s, %s) then 1 else 0 end", ADA, NEW_WORKER
    )
    await look(scene)
    for execution in executions[1:]:
        await scene.end(execution, Ending(state=RunState.QUEUED, turns=1, usage={}))
    return executions[0].run_id, executions[2].run_id, await start(scene)


async def test_what_only_an_old_version_can_carry_on_takes_no_room_of_the_new_one(scene: Scene) -> None:
    _, old, new = await crowded(scene)
    assert [await place(scene, run_id) for run_id in (old, new)] == ["waiting", "waiting"]
    assert await look(scene) == [new]
    assert await engine_version(scene, new) == NEW
    assert await look(scene) == []
    await scene.rows("update surefoot.workers set slots = 3 where worker_id = %s", ADA)
    assert await look(scene) == [old]
    assert await engine_version(scene, old, 1) == VERSION


async def test_control_with_one_room_for_all_versions_it_does(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_room(found: Any, agent: str | None) -> dict[str, int | None]:
        running = sum(row["running"] for row in found["running"])
        return {"all": max(0, sum(worker["slots"] for worker in found["live"]) - running)}

    await crowded(scene)
    monkeypatch.setattr(admitting, "_rooms", one_room)
    assert await look(scene) == []


async def rolling(scene: Scene) -> list[RunId]:
    """Three old workers with three slots each have nothing to do, and a new one has come with one; four runs start."""
    await deploy(scene, NEW, NEW_WORKER)
    await scene.rows("update surefoot.workers set slots = case worker_id when %s then 1 else 3 end", NEW_WORKER)
    await look(scene)
    return [await start(scene) for _ in range(4)]


async def test_what_begins_in_a_deploy_has_the_room_of_the_new_version_alone(scene: Scene) -> None:
    started = await rolling(scene)
    assert [await place(scene, run_id) for run_id in started] == ["open", "waiting", "waiting", "waiting"]
    assert await look(scene) == []
    assert await engine_version(scene, started[0]) == NEW


async def test_control_with_the_room_of_all_that_live_it_stands_in_the_engines_queue(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = admitting._told  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(admitting, "_told", lambda limits, left, _, *, again: told(limits, left, {}, again=again))
    started = await rolling(scene)
    assert [await place(scene, run_id) for run_id in started] == ["open"] * 4
    assert {await engine_version(scene, run_id) for run_id in started} == {NEW}


async def test_the_slots_of_a_worker_that_is_not_ready_are_no_room(scene: Scene) -> None:
    """Its version is not the one that has what begins, either."""
    await scene.rows("update surefoot.workers set slots = case worker_id when %s then 1 else 0 end", ADA)
    async with scene.database.all_tenants("worker.register") as session:
        await register(session, NEW_WORKER, version=NEW, ready=False)
        await versions.announce(session, NEW, [versions.Serves(AGENT, "2", 1, frozenset({1}), frozenset(), {}, {})])
    await scene.rows("update surefoot.workers set slots = 3 where worker_id = %s", NEW_WORKER)
    await look(scene)
    started = [await start(scene) for _ in range(2)]
    assert await look(scene) == []
    assert [await place(scene, run_id) for run_id in started] == ["open", "waiting"]


async def two_fleets(scene: Scene) -> None:
    """One has its agent under a version of its own, as fleets do, with two slots; Ada has one for the other agent."""
    await scene.rows("insert into surefoot.agents (name, version, input_schema) values ('other', '1', '{}')")
    await deploy(scene, "other=1", NEW_WORKER)
    await scene.rows("update surefoot.version_agents set agent = 'other' where version = 'other=1'")
    await scene.rows(
        "update surefoot.workers set slots = case worker_id when %s then 2 when %s then 1 else 0 end,"
        " agents = case worker_id when %s then '{other}'::text[] else %s end",
        NEW_WORKER, ADA, NEW_WORKER, [AGENT],
    )  # fmt: skip
    await look(scene)


async def test_a_fleet_whose_workers_are_gone_takes_no_room_of_another_one(scene: Scene) -> None:
    await two_fleets(scene)
    theirs = [await start(scene, agent="other") for _ in range(3)]
    assert [await place(scene, run_id) for run_id in theirs] == ["open", "open", "waiting"]
    await stop(scene, NEW_WORKER)
    mine = await start(scene)
    assert await look(scene) in ([], [mine])
    assert await place(scene, mine) == "open"
    assert await place(scene, theirs[2]) == "waiting"


async def test_a_fleet_whose_workers_are_gone_takes_no_slot_of_a_limit_with_what_it_has_not_begun(scene: Scene) -> None:
    await two_fleets(scene)
    await limit(scene, running_max=2)
    theirs = [await start(scene, agent="other") for _ in range(2)]
    assert await look(scene) == theirs
    taken = "update dbos.workflow_status set status = 'PENDING', executor_id = %s where workflow_uuid = %s"
    await scene.rows(taken, NEW_WORKER, f"{theirs[0]}:0")
    mine = await start(scene)
    assert await look(scene) == []
    await stop(scene, NEW_WORKER)
    assert await look(scene) == [mine]
    assert [await place(scene, run_id) for run_id in theirs] == ["open", "waiting"], "one is somebody's"
    assert await scene.rows("select count(*) from dbos.workflow_status where workflow_uuid = %s", f"{theirs[1]}:0") == [
        (0,)
    ]
    await deploy(scene, "other=1", NEWER_WORKER)
    assert await look(scene) == [], "the limit holds when it is back"
    await over(scene, mine)
    assert await look(scene) == [theirs[1]]
    assert await engine_version(scene, theirs[1]) == "other=1"


async def test_what_waits_for_its_turn_is_held_and_waits_again_once_it_is_released(scene: Scene) -> None:
    await slots(scene, 0)
    run_id = await start(scene)
    assert await does(scene, lambda s: steering.hold(s, run_id, by="ada", reason="look")) == RunState.HELD
    assert await place(scene, run_id) == "settled"
    await slots(scene, 1)
    assert await look(scene) == []
    await slots(scene, 0)
    await release(scene, run_id)
    assert await place(scene, run_id) == "waiting"
    await slots(scene, 1)
    assert await place(scene, run_id) == "open"
    await over(scene, run_id, n=1)


async def test_a_delayed_run_that_is_held_and_released_begins_when_it_is_due_and_not_before(scene: Scene) -> None:
    run_id = await start(scene, not_before=datetime.now(UTC) + timedelta(hours=1))
    for n in (1, 2):
        await does(scene, lambda s: steering.hold(s, run_id, by="ada", reason="look"))
        await release(scene, run_id)
        assert await place(scene, run_id) == "delayed", n
    await scene.rows("update surefoot.segments set queued_at = queued_at - interval '2 hours' where state = 'delayed'")
    assert await look(scene) == [run_id]


async def test_what_is_released_and_never_began_is_one_that_begins_in_the_place_that_it_had(scene: Scene) -> None:
    await limit(scene, starts_max=1, period_s=3600, queued_max=4)
    first, second, third = [await start(scene) for _ in range(3)]
    assert await look(scene) == [first]
    for run_id in (second, third):
        await does(scene, lambda s, run_id=run_id: steering.hold(s, run_id, by="ada", reason="look"))
    late = await start(scene)
    for run_id in (third, second):
        await release(scene, run_id)
    assert await look(scene) == [], "a limit on starts holds for them"
    await start(scene)
    with pytest.raises(QueueFull):
        await start(scene)
    assert await place(scene, late) == "waiting"
    for run_id in (second, third, late):
        await scene.rows("update surefoot.segments set admitted_at = admitted_at - interval '1 hour'")
        assert await look(scene) == [run_id]
    await over(scene, second, n=1, state=RunState.QUEUED)
    assert await place(scene, second) == "open", "now it goes on"


async def test_what_is_released_waits_for_the_limit_as_any_other(scene: Scene) -> None:
    await limit(scene, agent=AGENT, running_max=1)
    held, other = await start(scene), await start(scene)
    assert await look(scene) == [held]
    await over(scene, held, state=RunState.HELD)
    assert await look(scene) == [other]
    await release(scene, held)
    assert await look(scene) == []
    await over(scene, other)
    assert await look(scene) == [held]


async def release(scene: Scene, run_id: RunId) -> None:
    async with scene.database.transaction("run.release", DEFAULT_TENANT) as session:
        await runs.release(session, run_id, by="ada")
