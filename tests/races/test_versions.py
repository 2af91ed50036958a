"""Which version carries a run on: chosen when it is handed to the engine, put right later; and what people do."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.router import Router
from tests.races import invariants
from tests.races.scenes import ADA, AGENT, BOB, EVE, READER, SERVING, VERSION, Scene, Waiting, register, serve
from transactions import (
    DEFAULT_TENANT,
    Conflict,
    Diverged,
    InvalidInput,
    NotFound,
    RunId,
    RunState,
    Tenant,
    WorkerId,
    diverging,
    messages,
    outbox,
    readers,
    segments,
    steering,
    versions,
    workers,
)
from transactions.readers import Record, Serving
from transactions.segments import Begun, Ending

OLDER, NEW, NEWER = "report=0", "report=2", "report=3"
OLDER_WORKER = WorkerId("older")
NEW_WORKER, NEWER_WORKER = WorkerId("new"), WorkerId("newer")
GRACE_S = 3600.0


CALL = {"part_kind": "tool-call", "tool_call_id": "call0", "tool_name": "publish", "args": {"position": 0}}
ASKED = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "go"}]}
SAID = {"kind": "response", "parts": [{"part_kind": "text", "content": "yes"}, CALL]}


def answers(*call_ids: str) -> dict[str, Any]:
    parts = [{"part_kind": "tool-return", "tool_call_id": call_id, "content": "seen"} for call_id in call_ids]
    return {"kind": "request", "parts": parts}


async def record(scene: Scene, waiting: Waiting, said: list[Any]) -> None:
    """The messages of its first turn."""
    async with scene.database.transaction("segment.turn", DEFAULT_TENANT) as session:
        await messages.append(session, waiting.execution, first_seq=0, messages=said)
        await segments.record_turn(session, waiting.execution, turns=1, usage={})


async def deploy(scene: Scene, version: str, worker_id: WorkerId, **states: Any) -> None:
    """A worker of this version starts."""
    async with scene.database.all_tenants("worker.register") as session:
        await register(session, worker_id, version=version)
        await serve(session, version, **states)


async def other_fleet(scene: Scene) -> None:
    """A worker starts that does not serve the agent of the scene."""
    async with scene.database.all_tenants("worker.register") as session:
        await register(session, NEW_WORKER, version=NEW)
        await versions.announce(session, NEW, [versions.Serves("other", "1", 1, frozenset({1}), frozenset(), {}, {})])
        await versions.begin(session, NEW)


async def stop(scene: Scene, *worker_ids: WorkerId, since_s: float = 0.0) -> None:
    """These have been gone for so long."""
    await scene.rows(
        "update surefoot.workers set state = 'dead', ended_at = now() - make_interval(secs => %s)"
        " where worker_id = any(%s)",
        since_s,
        list(worker_ids),
    )


async def up_for_a_day(scene: Scene, *worker_ids: WorkerId) -> None:
    day_ago = "update surefoot.workers set started_at = started_at - interval '1 day' where worker_id = any(%s)"
    await scene.rows(day_ago, list(worker_ids))


async def engine_version(scene: Scene, run_id: RunId, n: int = 0) -> str | None:
    [[version]] = await scene.rows(
        "select application_version from dbos.workflow_status where workflow_uuid = %s", f"{run_id}:{n}"
    )
    return version


async def current(scene: Scene) -> str:
    [[version]] = await scene.rows("select surefoot.current_version(%s)", AGENT)
    return version


async def begin(scene: Scene, run_id: RunId, n: int, worker_id: WorkerId, version: str, **reader: Any) -> Begun | None:
    """As a worker of this version does, once the engine says that it has the segment."""
    await scene.rows(
        "update dbos.workflow_status set status = 'PENDING', executor_id = %s, application_version = %s"
        " where workflow_uuid = %s",
        worker_id,
        version,
        f"{run_id}:{n}",
    )
    serving = Serving(version, {AGENT: replace(READER, agent_version=version, **reader)})
    async with scene.database.all_tenants("segment.begin") as session:
        return await segments.begin(session, run_id=run_id, n=n, worker_id=worker_id, serving=serving, stalls_max=5)


async def routed(scene: Scene, *, version: str = NEW, grace_s: float = GRACE_S) -> None:
    await Router(scene.database, version, grace_s).run_once()


async def does(scene: Scene, body: Callable[[Any], Awaitable[Any]]) -> Any:
    async with scene.database.transaction("run.hold", DEFAULT_TENANT) as session:
        return await body(session)


# Which one is current.


async def test_a_version_that_was_never_seen_is_current_and_the_restart_of_a_known_one_changes_nothing(
    scene: Scene,
) -> None:
    assert await current(scene) == VERSION
    await deploy(scene, NEW, NEW_WORKER)
    assert await current(scene) == NEW
    await deploy(scene, VERSION, WorkerId("restarted"))
    assert await current(scene) == NEW
    [[agent_version]] = await scene.rows("select version from surefoot.agents where name = %s", AGENT)
    assert agent_version == "1"  # of what is current, as `scenes.serve` says of every version
    async with scene.database.all_tenants("version.use") as session:
        assert await versions.use(session, VERSION, by="ada") == VERSION
    assert await current(scene) == VERSION
    with pytest.raises(NotFound, match="No application version 'nope' was ever started here"):
        await scene.administrate(lambda session: versions.use(session, "nope", by="ada"))


async def test_a_version_has_nothing_before_one_of_its_workers_is_ready(scene: Scene) -> None:
    """It has registered, and may end before it could execute anything: again and again."""
    queued = await scene.start()
    asks = await scene.about_to_wait(["approval"])
    await scene.end(asks.execution, asks.ending())
    async with scene.database.all_tenants("worker.register") as session:
        await register(session, NEW_WORKER, version=NEW, ready=False)
        serves = versions.Serves(AGENT, "2", 1, frozenset({1}), frozenset({"publish"}), {}, {})
        await versions.announce(session, NEW, [serves])
    await routed(scene)
    await scene.decide(asks.action(0), "approve")
    fresh = await scene.start()
    has = [await engine_version(scene, *which) for which in ((queued,), (asks.run_id, 1), (fresh,))]
    assert (await current(scene), has) == (VERSION, [VERSION] * 3)
    assert await scene.rows("select version from surefoot.agents where name = %s", AGENT) == [("1",)]
    async with scene.database.all_tenants("worker.ready") as session:
        await workers.ready(session, NEW_WORKER)
        assert await versions.begin(session, NEW)
        assert not await versions.begin(session, NEW)
    await routed(scene)
    has = [await engine_version(scene, *which) for which in ((queued,), (asks.run_id, 1), (fresh,))]
    assert (await current(scene), has) == (NEW, [NEW] * 3)
    assert await scene.rows("select version from surefoot.agents where name = %s", AGENT) == [("2",)]


async def test_a_build_that_reads_other_states_under_the_same_version_does_not_start(scene: Scene) -> None:
    with pytest.raises(InvalidInput, match="name the build with SUREFOOT_VERSION"):
        await deploy(scene, VERSION, NEW_WORKER, state_version=2, reads=(1, 2))
    await deploy(scene, VERSION, NEW_WORKER)


async def test_the_newest_live_version_takes_the_place_of_one_that_is_gone(scene: Scene) -> None:
    await deploy(scene, NEW, NEW_WORKER)
    await deploy(scene, NEWER, NEWER_WORKER)
    await stop(scene, NEWER_WORKER, since_s=GRACE_S / 2)
    await routed(scene)
    assert await current(scene) == NEWER, "it may be on its way up"
    await stop(scene, NEWER_WORKER, since_s=GRACE_S * 2)
    await routed(scene)
    assert await current(scene) == NEWER, "all have just come up again, and it may yet"
    await up_for_a_day(scene, NEW_WORKER)
    await routed(scene)
    assert await current(scene) == NEW
    await stop(scene, NEW_WORKER, ADA, BOB, EVE, since_s=GRACE_S * 2)
    await routed(scene)
    assert await current(scene) == NEW, "none lives"


async def test_an_agent_whose_version_is_gone_takes_no_other_one_back(scene: Scene) -> None:
    """The scene's version has two agents; of each of them there is a newer one, of which one is gone."""

    async def deployed(version: str, worker_id: WorkerId, *agents: str) -> None:
        async with scene.database.all_tenants("worker.register") as session:
            await register(session, worker_id, version=version)
            serves = [versions.Serves(agent, "1", 1, frozenset({1}), frozenset(), {}, {}) for agent in agents]
            await versions.announce(session, version, serves)
            await versions.begin(session, version)

    await deployed("both", WorkerId("both"), AGENT, "other")
    await deployed(NEW, NEW_WORKER, "other")
    await deployed(NEWER, NEWER_WORKER, AGENT)
    await up_for_a_day(scene, ADA)
    await stop(scene, NEWER_WORKER, BOB, EVE, since_s=GRACE_S * 2)
    await routed(scene)
    assert await scene.rows("select surefoot.current_version('other')") == [(NEW,)]
    await stop(scene, NEW_WORKER, since_s=GRACE_S * 2)
    await routed(scene)
    assert await scene.rows("select surefoot.current_version('other')") == [("both",)]
    assert await current(scene) == "both"


async def test_the_runs_of_versions_are_counted_by_the_tenant_in_code(scene: Scene) -> None:
    """Also by who sees the runs of all tenants."""
    await scene.running(Tenant("b"))
    for tenant, runs in ((DEFAULT_TENANT, 0), (Tenant("b"), 1)):
        async with scene.database.all_tenants("read") as session:
            [row] = await versions.page(session, tenant, limit=5)
        assert row["runs"] == runs


# Handing to the engine.


async def test_a_run_is_handed_to_the_newest_version_that_can_read_it(scene: Scene) -> None:
    begun = (await scene.running()).run_id
    asks = await scene.about_to_wait(["approval"])
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(2,))
    await deploy(scene, NEWER, NEWER_WORKER, state_version=1, reads=(1,))
    fresh = await scene.start()
    assert await engine_version(scene, fresh) == NEWER
    await stop(scene, NEWER_WORKER)
    fresh = await scene.start()
    assert await engine_version(scene, fresh) == NEW, "what has not begun has no state"
    await scene.end(asks.execution, asks.ending())
    await scene.decide(asks.action(0), "approve")
    assert await engine_version(scene, asks.run_id, 1) == VERSION
    async with scene.database.all_tenants("worker.drain") as session:
        for worker_id in (ADA, BOB, EVE):
            await workers.drain(session, worker_id)
    await scene.lose(begun, 0)
    await scene.restart_lost(begun, 0)
    assert await engine_version(scene, begun, 1) == NEWER, "no worker of any of them takes work: the newest that could"


async def test_without_any_version_the_engine_s_latest_has_it(scene: Scene) -> None:
    await scene.rows("delete from surefoot.version_agents")
    run_id = await scene.start()
    assert await engine_version(scene, run_id) is None
    async with scene.database.all_tenants("worker.register") as session:
        await serve(session, VERSION)
    await routed(scene, version=VERSION)
    assert await engine_version(scene, run_id) == VERSION


async def test_without_a_live_version_a_worker_of_before_versions_has_it(scene: Scene) -> None:
    """The first worker of a new release has come and gone, and those of the one before carry on."""
    async with scene.database.all_tenants("worker.register") as session:
        await register(session, OLDER_WORKER, version=OLDER, ready=False)
    assert await engine_version(scene, await scene.start()) == VERSION
    await stop(scene, ADA, BOB, EVE)
    run_id = await scene.start()
    assert await engine_version(scene, run_id) == OLDER
    await routed(scene)
    assert await engine_version(scene, run_id) == OLDER
    await deploy(scene, NEW, NEW_WORKER)
    await routed(scene)
    assert await engine_version(scene, run_id) == NEW
    await stop(scene, OLDER_WORKER, NEW_WORKER)
    assert await engine_version(scene, await scene.start()) == NEW


# What is for a version that has no worker.


async def test_what_is_queued_goes_to_the_newest_and_what_has_begun_stays_while_its_version_lives(
    scene: Scene,
) -> None:
    queued, begun, executed = await scene.start(), await scene.start(), (await scene.running()).run_id
    await scene.dequeue(begun, 0, BOB)
    assert await scene.begin(begun, 0, BOB) is not None
    await scene.rows("update dbos.workflow_status set status = 'ENQUEUED' where workflow_uuid = %s", f"{begun}:0")
    await deploy(scene, NEW, NEW_WORKER)
    await routed(scene)
    found = [await engine_version(scene, run_id) for run_id in (queued, begun, executed)]
    assert found == [NEW, VERSION, VERSION]
    await stop(scene, ADA, BOB, EVE)
    await routed(scene)
    found = [await engine_version(scene, run_id) for run_id in (queued, begun, executed)]
    assert found == [NEW, NEW, NEW]
    for run_id in (begun, executed):
        seen = await scene.seen(run_id)
        assert [event["kind"] for event in seen["events"]][-1] == "segment.moved"
        assert seen["state"] == "running"
        invariants.consistent(seen)
    await routed(scene)
    assert [e["kind"] for e in (await scene.seen(executed))["events"]].count("segment.moved") == 1


async def test_a_workflow_whose_segment_is_settled_is_taken_by_anybody(scene: Scene) -> None:
    """Its worker died between our commit and the engine's, and no worker of its version is left to tell the engine."""
    execution = await scene.running()
    await scene.end(execution, Ending(state=RunState.COMPLETED, turns=0, usage={}, output=1))
    await deploy(scene, NEW, NEW_WORKER)
    await routed(scene)
    assert await engine_version(scene, execution.run_id) == VERSION
    await stop(scene, ADA, BOB, EVE)
    await routed(scene)
    assert await engine_version(scene, execution.run_id) == NEW
    assert await begin(scene, execution.run_id, 0, NEW_WORKER, NEW) is None


@pytest.mark.parametrize("why", ["it cannot be read", "nobody serves it", "it was moved to what is gone"])
async def test_what_is_being_cancelled_is_ended_by_anybody(scene: Scene, why: str) -> None:
    """Its last worker died before it ended it, and no version that could carry it on lives."""
    run_id = (await scene.running()).run_id
    if why == "nobody serves it":
        await other_fleet(scene)
    else:
        await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(2,))
    if why == "it was moved to what is gone":
        await does(scene, lambda s: steering.move(s, run_id, to=VERSION, by="ada"))
    await scene.cancel(run_id)
    await routed(scene)
    assert await engine_version(scene, run_id) == VERSION, "its worker lives, and ends it"
    await stop(scene, ADA, BOB, EVE)
    await routed(scene)
    assert await engine_version(scene, run_id) == NEW
    assert await begin(scene, run_id, 0, NEW_WORKER, NEW, as_is=frozenset({2}), writes=2) is None
    seen = await scene.seen(run_id)
    assert seen["state"] == "cancelled"
    invariants.consistent(seen)


async def test_what_nobody_that_lives_can_read_is_held_after_the_grace_and_goes_on_once_somebody_can(
    scene: Scene,
) -> None:
    run_id = (await scene.running()).run_id
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(2,))
    await scene.rows("update surefoot.segments set created_at = created_at - interval '1 day'")
    await stop(scene, ADA, BOB, EVE, since_s=GRACE_S / 2)
    await routed(scene)
    assert (await scene.seen(run_id))["state"] == "running"
    await stop(scene, ADA, BOB, EVE, since_s=GRACE_S * 2)
    await routed(scene)
    seen = await scene.seen(run_id)
    assert (seen["state"], seen["held_for"]) == ("held", "version")
    assert f"lives ({VERSION})" in seen["reason"]
    await scene.rows("""update surefoot.agents set limits = '{"held_s_max": 1}'""")
    await scene.rows("update surefoot.run_states set entered_at = now() - interval '1 day' where left_at is null")
    for view in ("run_status", "stuck_runs"):
        [[what_to_do]] = await scene.rows(f"select what_to_do from surefoot.{view} where run_id = %s", run_id)
        assert "surefoot runs migrate --to VERSION" in what_to_do
    await routed(scene)
    assert (await scene.seen(run_id))["state"] == "held"
    await deploy(scene, VERSION, WorkerId("back"))
    await routed(scene)
    seen = await scene.seen(run_id)
    assert (seen["state"], seen["held_for"], seen["reason"]) == ("queued", None, None)
    assert await engine_version(scene, run_id, 1) == VERSION
    invariants.consistent(seen)


@pytest.mark.parametrize("begun", [False, True])
async def test_what_nobody_that_lives_serves_just_waits_for_the_grace_and_then_is_held(
    scene: Scene, begun: bool
) -> None:
    run_id = (await scene.running()).run_id if begun else await scene.start()
    await stop(scene, ADA, BOB, EVE, since_s=GRACE_S * 2)
    async with scene.database.all_tenants("worker.register") as session:
        await register(session, NEW_WORKER, version="other=1")
        other = versions.Serves("other", "1", 1, frozenset({1}), frozenset(), {}, {})
        await versions.announce(session, "other=1", [other])
        await versions.begin(session, "other=1")
    await scene.rows("update surefoot.segments set created_at = created_at - interval '1 day'")
    await routed(scene, version="other=1")
    assert (await scene.seen(run_id))["state"] == ("running" if begun else "queued")
    assert await current(scene) == VERSION
    await up_for_a_day(scene, NEW_WORKER)
    for _ in range(2):
        await routed(scene, version="other=1")
        seen = await scene.seen(run_id)
        assert (seen["state"], seen["held_for"]) == ("held", "version")
        assert seen["reason"].startswith(
            "no version that has a worker serves agent report, and no worker of one that can"
        )
    await deploy(scene, VERSION, WorkerId("back"))
    await routed(scene, version="other=1")
    assert (await scene.seen(run_id))["state"] == "queued"
    assert await engine_version(scene, run_id, 1) == VERSION


# Delivering.


async def claimed_by(scene: Scene, worker_id: WorkerId) -> list[str | None]:
    """The effects that a relay of this worker finds due."""
    async with scene.database.all_tenants("relay.claim") as session:
        found = await outbox.claim_due(
            session, consumers=["effect"], agents=[AGENT], worker_id=worker_id, lease_s=3600.0, limit=5
        )
    return [delivery.action_id for delivery in found]


OTHERS = [{"state_version": 2, "reads": (2,)}, {"tools": ("send",)}]


@pytest.mark.parametrize("other", OTHERS)
async def test_an_effect_is_delivered_by_who_has_its_tool_and_reads_its_run(scene: Scene, other: Any) -> None:
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    await scene.rows("update surefoot.outbox_deliveries set state = 'pending', due_at = clock_timestamp()")
    await deploy(scene, NEW, NEW_WORKER, **other)
    assert await claimed_by(scene, NEW_WORKER) == []
    assert await claimed_by(scene, ADA) == [waiting.action(0)]


@pytest.mark.parametrize("other", OTHERS)
async def test_a_run_that_waits_for_what_nobody_can_deliver_is_held_until_somebody_can(
    scene: Scene, other: Any
) -> None:
    execution, action_id, _ = await scene.unknown()
    await scene.rows("update surefoot.outbox_deliveries set lease_until = clock_timestamp()")
    await deploy(scene, NEW, NEW_WORKER, **other)
    await routed(scene)
    await stop(scene, ADA, BOB, EVE, since_s=GRACE_S / 2)
    await routed(scene)
    assert (await scene.seen(execution.run_id))["state"] == "waiting"
    await stop(scene, ADA, BOB, EVE, since_s=GRACE_S * 2)
    for _ in range(2):
        await routed(scene)
        seen = await scene.seen(execution.run_id)
        assert (seen["state"], seen["held_for"]) == ("held", "version")
        assert "its call of publish, which no version that has a worker can deliver" in seen["reason"]
        assert f"lives ({VERSION})" in seen["reason"]
    await deploy(scene, VERSION, WorkerId("back"))
    await routed(scene)
    seen = await scene.seen(execution.run_id)
    assert (seen["state"], seen["reason"]) == ("waiting", None)
    assert await claimed_by(scene, WorkerId("back")) == [action_id]
    assert [event["kind"] for event in seen["events"]].count("run.held") == 1
    invariants.consistent(seen)


# Beginning.


async def test_a_version_that_cannot_carry_a_run_on_passes_it_on_and_holds_it_where_there_is_no_other(
    scene: Scene,
) -> None:
    execution = await scene.running()
    run_id = execution.run_id
    await scene.lose(run_id, 0)
    assert await scene.restart_lost(run_id, 0)
    await deploy(scene, NEW, NEW_WORKER)  # says that it reads state 1
    assert await begin(scene, run_id, 1, NEW_WORKER, NEW, as_is=frozenset({2}), writes=2) is None
    seen = await scene.seen(run_id)
    assert (seen["state"], seen["segment"], seen["refused_by"]) == ("queued", 2, [NEW])
    assert await engine_version(scene, run_id, 2) == VERSION
    refused = Serving(VERSION, {})
    await scene.dequeue(run_id, 2, ADA)
    async with scene.database.all_tenants("segment.begin") as session:
        begun = await segments.begin(session, run_id=run_id, n=2, worker_id=ADA, serving=refused, stalls_max=5)
    assert begun is None
    seen = await scene.seen(run_id)
    assert (seen["state"], seen["refused_by"]) == ("held", [NEW, VERSION])
    assert "does not serve agent report, and no version that was ever started here can" in seen["reason"]
    await routed(scene)
    assert (await scene.seen(run_id))["state"] == "held", "and not again and again"
    await scene.release(run_id)
    assert (await scene.seen(run_id))["refused_by"] == []
    invariants.consistent(await scene.seen(run_id))


async def test_a_call_that_the_new_version_has_no_tool_for_is_left_to_one_that_has(scene: Scene) -> None:
    execution, _, _ = await scene.unknown()
    await deploy(scene, NEW, NEW_WORKER)
    await scene.rows("update surefoot.waits set state = 'settled', outcome = 'go', settled_at = now()")
    assert await scene.wake(execution.run_id)
    assert await begin(scene, execution.run_id, 1, NEW_WORKER, NEW, tools=frozenset({"publish transaction"})) is None
    seen = await scene.seen(execution.run_id)
    assert (seen["state"], seen["refused_by"]) == ("queued", [NEW])
    assert seen["events"][-1]["data"]["why"].startswith("it has called publish (effect), and version")
    assert await engine_version(scene, execution.run_id, 2) == VERSION


@pytest.mark.parametrize("answered", [(), ("call9",), ("call9", "call0")])
async def test_a_call_that_was_done_and_not_answered_is_left_to_a_version_that_has_its_tool(
    scene: Scene, answered: Sequence[str]
) -> None:
    """The other call of its response was answered when it began to wait, or none, or both were."""
    waiting = await scene.about_to_wait(["delivery"])
    await record(scene, waiting, [ASKED, SAID, *([answers(*answered)] if answered else [])])
    await scene.end(waiting.execution, waiting.ending())
    await scene.receive(waiting.action(0))
    await deploy(scene, NEW, NEW_WORKER)
    begun = await begin(scene, waiting.run_id, 1, NEW_WORKER, NEW, tools=frozenset({"send effect"}))
    if "call0" in answered:
        assert begun is not None
        return
    assert begun is None
    seen = await scene.seen(waiting.run_id)
    assert seen["refused_by"] == [NEW]
    assert seen["events"][-1]["data"]["why"].startswith("it has called publish (effect), and version")


async def test_what_is_recorded_of_a_segment_is_not_replayed_over_a_migrated_record(scene: Scene) -> None:
    execution = await scene.running()
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(1, 2))

    def migrated(state: int, record: Record) -> Record:
        return Record({"state": state + 1}, record.messages)

    new = {"as_is": frozenset({2}), "migrated": frozenset({1}), "writes": 2, "migrate": migrated}
    assert await begin(scene, execution.run_id, 0, NEW_WORKER, NEW, **new) is None
    begun = await begin(scene, execution.run_id, 1, NEW_WORKER, NEW, **new)
    assert begun is not None
    assert begun.input == {"state": 2}
    seen = await scene.seen(execution.run_id)
    assert [segment["outcome"] for segment in seen["segments"]] == ["migrated", None]
    assert (seen["state_version"], seen["app_version"], seen["stalls"]) == (2, NEW, 0)
    invariants.consistent(seen)


@pytest.mark.parametrize("answered", [(), ("call9",)])
@pytest.mark.parametrize(
    ("made", "why"),
    [
        ([ASKED], "it made {made} messages of {of}"),
        ([ASKED, ASKED], "message 1 is of another kind"),
        ([ASKED, {**SAID, "parts": []}], "message 1 is of another kind, or has other calls"),
        ([ASKED, {**SAID, "parts": [{**CALL, "tool_name": "send"}]}], "message 1 has another name or other arguments"),
        ([ASKED, {**SAID, "parts": [{**CALL, "args": {}}]}], "message 1 has another name or other arguments"),
        ([{**ASKED, "parts": []}, SAID], None),
        ([ASKED, {**SAID, "parts": [CALL]}], None),
    ],
)
async def test_a_migration_rewrites_in_place_and_leaves_what_was_begun(
    scene: Scene, made: list[Any], why: str | None, answered: Sequence[str]
) -> None:
    """Of its last response nothing is answered, or the other call is."""
    waiting = await scene.about_to_wait(["approval"])
    run_id = waiting.run_id
    then = [answers(*answered)] if answered else []
    await record(scene, waiting, [ASKED, SAID, *then])
    made = [*made, *then]
    await scene.end(waiting.execution, waiting.ending())
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(1, 2))
    await stop(scene, ADA, BOB, EVE)
    await scene.decide(waiting.action(0), "approve")
    begun = await begin(
        scene,
        run_id,
        1,
        NEW_WORKER,
        NEW,
        as_is=frozenset({2}),
        migrated=frozenset({1}),
        writes=2,
        migrate=lambda state, record: Record(record.input, made),
    )
    seen = await scene.seen(run_id)
    if why is None:
        assert begun is not None
        assert begun.history == made
        return
    assert begun is None
    assert seen["state"] == "queued"
    assert why.format(made=len(made), of=2 + len(then)) in str([event["data"] for event in seen["events"]])
    assert await scene.rows("select count(*) from surefoot.state_migrations") == [(0,)]


# Divergence.


async def test_a_migration_may_rewrite_a_call_that_is_answered(scene: Scene) -> None:
    waiting = await scene.about_to_wait(["delivery"])
    await scene.receive(waiting.action(0))
    await record(scene, waiting, [ASKED, SAID, answers("call0")])
    await scene.end(waiting.execution, Ending(state=RunState.QUEUED, turns=1, usage={}))
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(1, 2))
    made = [ASKED, {**SAID, "parts": [{**CALL, "tool_name": "send"}]}, answers("call0")]
    new = {"as_is": frozenset({2}), "migrated": frozenset({1}), "writes": 2}
    begun = await begin(
        scene, waiting.run_id, 1, NEW_WORKER, NEW, **new, migrate=lambda state, record: Record(record.input, made)
    )
    assert begun is not None
    assert begun.history == made


async def test_a_divergence_goes_on_from_the_record_and_after_so_many_in_a_row_is_held(scene: Scene) -> None:
    execution = await scene.running()
    told = Diverged(3, expected="tool:look:1", found="model.request")
    for n in range(3):
        async with scene.database.transaction("segment.diverge", DEFAULT_TENANT) as session:
            words = await diverging.end(session, execution, told, serving=SERVING, divergences_max=3)
        assert words is not None
        assert f"segment {n} by version '{VERSION}' diverged at step 3: expected 'tool:look:1'" in words
        async with scene.database.transaction("segment.diverge", DEFAULT_TENANT) as session:
            again = await diverging.end(session, execution, told, serving=SERVING, divergences_max=3)
        assert again is None, "only the answer to its commit was lost"
        if n < 2:
            await scene.dequeue(execution.run_id, n + 1, ADA)
            begun = await scene.begin(execution.run_id, n + 1, ADA)
            assert begun is not None
            execution = begun.execution
    seen = await scene.seen(execution.run_id)
    assert (seen["state"], seen["held_for"]) == ("held", None)
    assert "that makes 3 in a row" in seen["reason"]
    assert [segment["outcome"] for segment in seen["segments"]] == ["diverged", "diverged", "held"]
    invariants.consistent(seen)
    await scene.release(execution.run_id)
    assert (await scene.seen(execution.run_id))["state"] == "queued"


async def test_where_a_call_cannot_be_taken_up_a_divergence_is_left_to_another_version(scene: Scene) -> None:
    execution, _, _ = await scene.unknown()
    await scene.rows("update surefoot.waits set state = 'settled', outcome = 'go', settled_at = now()")
    assert await scene.wake(execution.run_id)
    await deploy(scene, NEW, NEW_WORKER)
    begun = await begin(scene, execution.run_id, 1, NEW_WORKER, NEW)
    assert begun is not None
    serving = Serving(NEW, {AGENT: replace(READER, tools=frozenset())})
    async with scene.database.transaction("segment.diverge", DEFAULT_TENANT) as session:
        told = Diverged(0, expected="a", found="b")
        words = await diverging.end(session, begun.execution, told, serving=serving, divergences_max=3)
    assert words is not None
    seen = await scene.seen(execution.run_id)
    assert (seen["state"], seen["refused_by"]) == ("queued", [NEW])
    assert await engine_version(scene, execution.run_id, 2) == VERSION


# What people do.


async def test_a_run_is_held_where_it_stands_and_goes_on_there(scene: Scene) -> None:
    queued = await scene.start()
    waiting = await scene.about_to_wait(["approval", "delivery"])
    await scene.end(waiting.execution, waiting.ending())
    for run_id in (queued, waiting.run_id):
        assert await does(scene, lambda s, r=run_id: steering.hold(s, r, by="ada", reason="look")) == RunState.HELD
        seen = await scene.seen(run_id)
        assert (seen["state"], seen["reason"]) == ("held", "ada: look")
        with pytest.raises(Conflict, match="is held already"):
            await does(scene, lambda s, r=run_id: steering.hold(s, r, by="ada", reason="look"))
    await scene.decide(waiting.action(0), "approve")
    assert (await scene.seen(waiting.run_id))["state"] == "held", "deciding it wakes nothing that is held"
    await scene.release(queued)
    assert (await scene.seen(queued))["state"] == "queued"
    await scene.release(waiting.run_id)
    assert (await scene.seen(waiting.run_id))["state"] == "waiting", "for what is still open"
    await does(scene, lambda s: steering.hold(s, waiting.run_id, by="ada", reason="again"))
    await scene.receive(waiting.action(1))
    await scene.release(waiting.run_id)
    seen = await scene.seen(waiting.run_id)
    assert (seen["state"], seen["segment"]) == ("queued", 1)
    await scene.dequeue(waiting.run_id, 1, ADA)
    begun = await scene.begin(waiting.run_id, 1, ADA)
    assert begun is not None
    assert [answer["go"] for answer in begun.frozen["answers"].values()] == [True, True]


@pytest.mark.parametrize("how", ["queued", "waiting", "completed", "died"])
async def test_a_running_run_is_held_at_its_next_boundary(scene: Scene, how: str) -> None:
    waiting = await scene.about_to_wait(["approval"])
    execution, run_id = waiting.execution, waiting.run_id
    assert await does(scene, lambda s: steering.hold(s, run_id, by="ada", reason="look")) == RunState.RUNNING
    assert await does(scene, lambda s: steering.asked_among(s, [run_id])) == {run_id}
    if how == "died":
        assert await scene.begin(run_id, 0, ADA) is None
    elif how == "completed":
        await scene.end(execution, Ending(state=RunState.COMPLETED, turns=1, usage={}, output=1))
    else:
        waits = waiting.waits if how == "waiting" else ()
        await scene.end(execution, Ending(state=RunState(how), turns=1, usage={}, waits=waits))  # type: ignore[arg-type]
    seen = await scene.seen(run_id)
    if how == "completed":
        assert (seen["state"], seen["asked"]) == ("completed", None)
        return
    assert (seen["state"], seen["reason"], seen["asked"]) == ("held", "ada: look", None)
    await scene.release(run_id)
    seen = await scene.seen(run_id)
    assert seen["state"] == ("waiting" if how == "waiting" else "queued")
    invariants.consistent(seen)


async def test_a_hold_that_is_only_asked_for_is_taken_back(scene: Scene) -> None:
    execution = await scene.running()
    run_id = execution.run_id
    with pytest.raises(Conflict, match="is running, not held"):
        await scene.release(run_id)
    await does(scene, lambda s: steering.hold(s, run_id, by="ada", reason="look"))
    await scene.release(run_id)
    assert await does(scene, lambda s: steering.asked_among(s, [run_id])) == frozenset()
    await scene.end(execution, Ending(state=RunState.QUEUED, turns=1, usage={}))
    seen = await scene.seen(run_id)
    assert (seen["state"], seen["asked_reason"]) == ("queued", None)
    assert [e["kind"] for e in seen["events"]].count("run.released") == 1
    invariants.consistent(seen)


async def test_a_run_is_moved_to_a_version_that_alone_has_it_from_then_on(scene: Scene) -> None:
    execution = await scene.running()
    run_id = execution.run_id
    await deploy(scene, NEW, NEW_WORKER)
    assert await does(scene, lambda s: steering.move(s, run_id, to=NEW, by="ada")) == NEW
    assert await does(scene, lambda s: steering.asked_among(s, [run_id])) == {run_id}
    await scene.end(execution, Ending(state=RunState.QUEUED, turns=1, usage={}))
    assert await engine_version(scene, run_id, 1) == NEW
    assert await does(scene, lambda s: steering.move(s, run_id, to=VERSION, by="ada")) == VERSION
    await routed(scene)
    assert await engine_version(scene, run_id, 1) == VERSION
    assert await begin(scene, run_id, 1, NEW_WORKER, NEW) is None, "whoever else has it passes it on"
    assert await engine_version(scene, run_id, 2) == VERSION
    await scene.dequeue(run_id, 2, ADA)
    assert await scene.begin(run_id, 2, ADA) is not None
    assert await does(scene, lambda s: steering.move(s, run_id, to=None, by="ada")) == NEW
    invariants.consistent(await scene.seen(run_id))


async def test_a_run_is_not_moved_to_where_it_cannot_be_read(scene: Scene) -> None:
    run_id = (await scene.running()).run_id
    await deploy(scene, NEW, NEW_WORKER, state_version=2, reads=(2,))
    for to, words in ((NEW, "reads 2: choose another one"), ("nope", "No application version 'nope'")):
        with pytest.raises((Conflict, NotFound), match=words):
            await does(scene, lambda s, to=to: steering.move(s, run_id, to=to, by="ada"))
    await scene.cancel(run_id)
    with pytest.raises(Conflict, match="is cancelling: there is nothing left to hold or to move"):
        await does(scene, lambda s: steering.move(s, run_id, to=None, by="ada"))
    assert readers.held_words("why", None).startswith("why, and no version")
