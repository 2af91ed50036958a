"""The queue, by the product's own functions: what goes at once, what waits and why, and that no turn is lost."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from tests.model.machines import changed
from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import ADA, AGENT, Scene, register
from transactions import (
    DEFAULT_TENANT,
    Conflict,
    Database,
    Execution,
    InvalidInput,
    NotFound,
    QueueFull,
    RunId,
    RunState,
    Tenant,
    WorkerId,
    admitting,
    limits,
    runs,
    segments,
)
from transactions.limits import Limit
from transactions.segments import Ending

B = Tenant("b")
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 20
NOW = "select count(*) from surefoot.segments where tenant = %s and state = %s"
TWICE = (
    "select count(*) from surefoot.segments s join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n"
    " where s.tenant = %s and s.state = 'waiting'"
)


async def start(scene: Scene, tenant: Tenant = DEFAULT_TENANT, agent: str = AGENT, **more: Any) -> RunId:
    async with scene.database.transaction("run.start", tenant) as session:
        given: dict[str, Any] = {"input": {}, "key": None, **more}
        return await runs.start(session, agent=agent, tenant=tenant, principal="test", **given)


async def look(scene: Scene) -> list[RunId]:
    """What a dispatcher admits."""
    found: list[RunId] = []
    while True:
        async with scene.database.all_tenants("queue.look") as session:
            looked = await admitting.look(session, fresh_s=0)
        found += looked.admitted
        if not looked.again:
            return found


async def limit(scene: Scene, tenant: Tenant | None = DEFAULT_TENANT, agent: str | None = None, **values: Any) -> None:
    async with scene.database.all_tenants("limit.set") as session:
        await limits.put(session, Limit(tenant, agent, **values), by="ada")


async def slots(scene: Scene, number: int) -> None:
    """So many slots of one worker, and a dispatcher has seen it."""
    await scene.rows("update surefoot.workers set slots = case worker_id when %s then %s else 0 end", ADA, number)
    await look(scene)


async def place(scene: Scene, run_id: RunId) -> str:
    [[state]] = await scene.rows(
        "select state from surefoot.segments where run_id = %s order by n desc limit 1", run_id
    )
    return state


async def why(scene: Scene, run_id: RunId, tenant: Tenant = DEFAULT_TENANT) -> str:
    async with scene.database.transaction("read", tenant) as session:
        return (await runs.status(session, run_id))["queued_why"]


async def over(scene: Scene, run_id: RunId, *, n: int = 0, state: Any = RunState.COMPLETED) -> None:
    """The segment is executed, and ends so."""
    await scene.dequeue(run_id, n, ADA)
    begun = await scene.begin(run_id, n, ADA)
    assert begun is not None
    reason = "put aside" if state is RunState.HELD else None
    await scene.end(begun.execution, Ending(state=state, turns=n + 1, usage={}, output="done", reason=reason))


@pytest.fixture
async def scene_of_two(scene: Scene) -> AsyncIterator[Scene]:
    """With a second tenant and a second agent."""
    await scene.rows("insert into surefoot.tenants (tenant) values ('b')")
    await scene.rows("insert into surefoot.agents (name, version, input_schema) values ('other', '1', '{}')")
    return scene


# At once, or not.


async def test_where_nothing_is_in_the_way_the_engine_has_it_with_the_commit_that_starts_it(scene: Scene) -> None:
    assert await place(scene, await start(scene)) == "open"  # its workers do not say how many slots they have
    await slots(scene, 2)
    assert [await place(scene, await start(scene)) for _ in range(2)] == ["open", "waiting"]  # one runs already


async def test_the_room_that_is_told_is_given_out_once_also_to_those_that_are_not_committed(scene: Scene) -> None:
    await slots(scene, 3)

    async def begin(n: int) -> str:
        async with scene.database.transaction("run.start", DEFAULT_TENANT) as session:
            run_id = await runs.start(
                session, agent=AGENT, input={"n": n}, key=None, tenant=DEFAULT_TENANT, principal="test"
            )
            await asyncio.sleep(0.2)  # all of them are in the middle of it at once
        return await place(scene, run_id)

    assert sorted(await asyncio.gather(*(begin(n) for n in range(8)))) == ["open"] * 3 + ["waiting"] * 5


async def test_where_somebody_waits_nobody_overtakes_and_the_next_look_admits_in_order(scene_of_two: Scene) -> None:
    scene = scene_of_two
    await slots(scene, 1)
    first, second = await start(scene), await start(scene)
    await over(scene, first)
    third = await start(scene)
    assert [await place(scene, run_id) for run_id in (second, third)] == ["waiting", "waiting"]
    assert await look(scene) == [second]
    await over(scene, second)
    urgent = await start(scene, priority=5)
    assert await look(scene) == [urgent]
    for limited in (Tenant("b"), None):
        await limit(scene, limited, running_max=9)
    assert await place(scene, await start(scene, B, "other")) == "waiting"


async def test_a_run_that_goes_on_comes_before_those_that_begin(scene: Scene) -> None:
    await limit(scene, running_max=1)
    first, second = await start(scene), await start(scene)
    assert await look(scene) == [first]
    urgent = await start(scene, priority=1)
    await over(scene, first, state=RunState.QUEUED)
    assert await place(scene, first) == "waiting"
    assert await look(scene) == [urgent]
    await over(scene, urgent)
    assert await look(scene) == [first]
    await over(scene, first, n=1)
    assert await look(scene) == [second]


@pytest.mark.parametrize("how", ["completed", "waiting", "held", "cancelled", "cancelled before it was admitted"])
async def test_a_run_gives_its_slot_back_by_its_state_alone(scene: Scene, how: str) -> None:
    await limit(scene, running_max=1)
    first, second = await start(scene), await start(scene)
    if how == "cancelled before it was admitted":
        await scene.cancel(first)
        assert await place(scene, first) == "settled"
    else:
        assert await look(scene) == [first]
        assert await look(scene) == []
        await (scene.cancel(first) if how == "cancelled" else _end(scene, first, how))
    assert await look(scene) == [second]


async def _end(scene: Scene, run_id: RunId, how: str) -> None:
    await scene.dequeue(run_id, 0, ADA)
    begun = await scene.begin(run_id, 0, ADA)
    assert begun is not None
    execution, calls = begun.execution, ()
    if how == "waiting":
        async with scene.database.transaction("calls", DEFAULT_TENANT) as session:
            calls = [await scene.call(session, execution, 0, "approval")]
    ending = Ending(state=RunState(how), turns=1, usage={}, output="o", reason=how, waits=calls)  # type: ignore[arg-type]
    await scene.end(execution, ending)


async def test_what_waits_is_not_lost_by_the_engine_and_what_is_lost_goes_on_before_others(scene: Scene) -> None:
    await limit(scene, running_max=1)
    first, second = await start(scene), await start(scene)
    assert await look(scene) == [first]
    await scene.rows("update surefoot.segments set created_at = created_at - interval '1 hour'")
    await scene.rows("delete from dbos.workflow_status where workflow_uuid = %s", f"{first}:0")
    async with scene.database.all_tenants("watchdog.look") as session:
        lost = await segments.lost(session, limit=9)
    assert [row["run_id"] for row in lost] == [first]
    assert await scene.restart_lost(first, 0)
    assert await look(scene) == [first]
    assert await place(scene, second) == "waiting"


async def test_what_begins_before_any_worker_was_there_waits_in_order_for_the_first_one(database_url: str) -> None:
    database = Database(database_url)
    start = "select surefoot.start_run(%s, '{}', tenant => %s)"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("insert into surefoot.tenants (tenant) values ('b')")
        connection.execute("insert into surefoot.agents (name, version, input_schema) values (%s, '1', '{}')", [AGENT])
        for _ in range(9):
            connection.execute(start, [AGENT, DEFAULT_TENANT])
        row = connection.execute(start, [AGENT, B]).fetchone()
    assert row is not None
    async with database.all_tenants("queue.look") as session:
        await register(session, ADA)
        await session.execute(text("update surefoot.workers set slots = 2"))
    async with database.all_tenants("queue.look") as session:
        admitted = (await admitting.look(session, fresh_s=0)).admitted
    await database.close()
    assert len(admitted) == 2
    assert row[0] in admitted


async def test_a_run_that_a_worker_of_before_goes_on_with_counts_against_the_limits_of_its_agent(scene: Scene) -> None:
    execution = await scene.running()
    await scene.rows(
        "update surefoot.segments set state = 'settled', outcome = 'queued', turns = 1, settled_at = now()"
    )
    await scene.rows("update surefoot.runs set segment = 1, state = 'queued'")
    await scene.rows("insert into surefoot.segments (run_id, n, tenant) values (%s, 1, 'default')", execution.run_id)
    await scene.rows("select surefoot.enqueue_segment(%s, 1)", execution.run_id)
    await limit(scene, agent=AGENT, running_max=1)
    mine = await start(scene)
    assert await look(scene) == []
    assert await place(scene, mine) == "waiting"


async def long_runs(scene: Scene) -> list[Execution]:
    """Of the first tenant three run, which is all that there is room for; of the second one a run waits."""
    mine = [await scene.running() for _ in range(3)]
    await slots(scene, 3)
    await start(scene, B)
    for _ in range(3):
        assert await look(scene) == []
    return mine


ASKED = "select run_id from surefoot.runs where asked = 'hand on' order by run_id"


async def test_one_run_of_the_tenant_that_has_most_hands_on_for_one_that_finds_no_room(scene_of_two: Scene) -> None:
    scene = scene_of_two
    mine = await long_runs(scene)
    [[asked]] = await scene.rows(ASKED)
    execution = next(one for one in mine if one.run_id == asked)
    await scene.end(execution, Ending(state=RunState.QUEUED, turns=1, usage={}))
    assert await place(scene, asked) == "waiting"
    [other] = await look(scene)
    assert other != asked
    await start(scene, B)
    await look(scene)
    assert await scene.rows(ASKED) == [], "of one run more there would be as many"


async def test_control_where_nobody_is_asked_they_keep_their_slots(
    scene_of_two: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead = ("ask_one_to_hand_on", "and r.asked is null", "and false")
    monkeypatch.setattr(admitting, "_QUEUE", changed("queue", instead))
    await long_runs(scene_of_two)
    assert await scene_of_two.rows(ASKED) == []


async def looks(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of ten dispatchers one after the other look at all that waits and runs."""
    made: list[object] = []
    look = admitting._found  # pyright: ignore[reportPrivateUsage]

    async def counted(session: Any) -> Any:
        made.append(session)
        return await look(session)

    with monkeypatch.context() as patch:
        patch.setattr(admitting, "_found", counted)
        for _ in range(10):
            async with scene.database.all_tenants("queue.look") as session:
                await admitting.look(session, fresh_s=3.0)
    return len(made)


async def test_where_nothing_happens_one_dispatcher_looks_for_all(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await slots(scene, 1)
    monkeypatch.setattr(admitting, "_IDLE_S", 60.0)
    quiet = "update surefoot.dispatch set looked_at = clock_timestamp() - make_interval(secs => %s)"
    await scene.rows(quiet, 5)
    assert await looks(scene, monkeypatch) == 0
    await scene.rows(quiet, 61)
    assert await looks(scene, monkeypatch) == 1
    await start(scene)  # takes the room that was told
    await scene.rows(quiet, 5)
    assert await looks(scene, monkeypatch) == 1
    await start(scene)  # waits
    await scene.rows(quiet, 5)
    assert await looks(scene, monkeypatch) == 1


# Limits.


async def test_a_limit_holds_for_its_tenant_its_agent_or_both(scene_of_two: Scene) -> None:
    scene = scene_of_two
    await limit(scene, B, running_max=2)
    await limit(scene, B, AGENT, running_max=1)
    await limit(scene, None, "other", running_max=2)
    started = {
        (tenant, agent): [await start(scene, tenant, agent) for _ in range(3)]
        for tenant in (DEFAULT_TENANT, B)
        for agent in (AGENT, "other")
    }
    await look(scene)
    open_ = {lane: [await place(scene, run_id) for run_id in mine].count("open") for lane, mine in started.items()}
    assert open_[DEFAULT_TENANT, AGENT] == 3  # for which there is none
    assert open_[B, AGENT] == 1
    assert open_[B, AGENT] + open_[B, "other"] == 2
    assert open_[DEFAULT_TENANT, "other"] + open_[B, "other"] == 2
    async with scene.database.transaction("read", B) as session:
        shown = [(row["of_tenant"], row["agent"], row["running_max"]) for row in await limits.page(session, B)]
    assert shown == [("b", None, 2), ("b", AGENT, 1), (None, "other", 2)]


async def test_a_tenant_sees_the_limits_that_hold_for_it_and_no_other_ones(scene_of_two: Scene) -> None:
    scene = scene_of_two
    for limited in (DEFAULT_TENANT, B, None):
        await limit(scene, limited, running_max=5)
    seen = text("select tenant, everyone from surefoot.limits order by 1, 2")
    for tenant in (DEFAULT_TENANT, B):
        async with scene.database.transaction("read", tenant) as session:
            found = [tuple(row) for row in await session.execute(seen)]
        assert found == sorted([(tenant, False), ("default", True)])


async def test_a_limit_on_starts_counts_those_within_any_period_and_none_that_goes_on(scene: Scene) -> None:
    await limit(scene, starts_max=2, period_s=3600)
    began = [await start(scene) for _ in range(3)]
    assert await look(scene) == began[:2]
    assert await why(scene, began[2]) == "limit of tenant default: 2 starts in 3600 s"
    await over(scene, began[0], state=RunState.QUEUED)
    assert await place(scene, began[0]) == "open"  # it goes on at once
    await scene.rows("update surefoot.segments set admitted_at = admitted_at - interval '1 hour' where n = 0")
    assert await look(scene) == began[2:]


async def test_a_limit_that_is_set_anew_holds_instead_and_one_that_is_unset_no_more(scene: Scene) -> None:
    await limit(scene, running_max=1, queued_max=5)
    await limit(scene, running_max=2)
    waiting = [await start(scene) for _ in range(6)]
    assert await look(scene) == waiting[:2]
    await limit(scene, running_max=0)
    assert await look(scene) == []
    async with scene.database.all_tenants("limit.unset") as session:
        await limits.unset(session, DEFAULT_TENANT, None, by="ada")
        assert await limits.page(session, DEFAULT_TENANT) == []
        with pytest.raises(NotFound, match="surefoot limits list"):
            await limits.unset(session, DEFAULT_TENANT, None, by="ada")
    assert await look(scene) == waiting[2:]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "Say what the limit is"),
        ({"running_max": -1}, "running_max is from 0 to 1000000"),
        ({"queued_max": 10**7}, "queued_max is from 0 to 1000000"),
        ({"starts_max": 0, "period_s": 1}, "starts_max is from 1 to 10000"),
        ({"starts_max": 1}, "belong together"),
        ({"period_s": 1, "running_max": 1}, "belong together"),
        ({"starts_max": 1, "period_s": 1e6}, "period_s is from 0.1 to 86400"),
        ({"running_max": 1, "agent": ""}, "An agent's name has 1 to 200"),
    ],
)
async def test_a_limit_that_is_none_is_refused(scene: Scene, values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        await limit(scene, **values)
    with pytest.raises(NotFound, match="No tenant 'nowhere'"):
        await limit(scene, Tenant("nowhere"), running_max=1)


# Back-pressure.


async def test_a_start_beyond_what_may_wait_is_refused_in_the_callers_transaction(scene: Scene) -> None:
    await limit(scene, running_max=1, queued_max=2)
    first = await start(scene, key="first")
    await look(scene)
    waiting = [await start(scene), await start(scene, not_before=datetime.now(UTC) + timedelta(hours=1))]
    with pytest.raises(
        QueueFull, match='The queue of tenant "default" is full: 2 runs wait to begin, and 2 may'
    ) as full:
        await start(scene)
    assert 1 <= full.value.retry_after_s <= 60
    assert await start(scene, key="first") == first  # the run that is there
    with pytest.raises(Conflict):
        await start(scene, key="first", input={"n": 1})
    with pytest.raises(psycopg.errors.DatabaseError) as refused:
        await scene.rows("select surefoot.start_run(%s, '{}')", AGENT)
    assert refused.value.sqlstate == "SF005"
    assert await scene.rows("select count(*) from surefoot.runs") == [(3,)]
    await scene.cancel(waiting[1])
    assert await place(scene, await start(scene)) == "waiting"


async def test_the_queue_of_all_tenants_is_full_whether_anybody_looks_or_not(scene_of_two: Scene) -> None:
    scene = scene_of_two
    await limit(scene, None, AGENT, running_max=0, queued_max=2)
    await start(scene)
    last = await start(scene, B)
    for tenant in (DEFAULT_TENANT, B):
        with pytest.raises(QueueFull, match=f'agent "{AGENT}" is full: as many runs of all tenants wait'):
            await start(scene, tenant)
    await start(scene, B, "other")
    async with scene.database.transaction("run.cancel", B) as session:
        await runs.cancel(session, last, by="ada", reason="asked for")
    await start(scene, B)
    with pytest.raises(QueueFull):
        await start(scene, B)
    await limit(scene, None, AGENT, running_max=5, queued_max=3)
    await start(scene, B)
    await look(scene)
    await start(scene, B)
    await limit(scene, None, AGENT, queued_max=0)
    with pytest.raises(QueueFull) as full:
        await start(scene, B)
    assert full.value.retry_after_s == 60


async def test_it_is_asked_again_after_what_one_of_those_that_wait_takes(scene: Scene) -> None:
    await limit(scene, running_max=0, queued_max=4)
    for _ in range(4):
        await start(scene)
    for age_s, after_s in ((0, 1), (20, 5), (3600, 60)):
        await scene.rows(
            "update surefoot.segments set queued_at = clock_timestamp() - make_interval(secs => %s)", age_s
        )
        with pytest.raises(QueueFull) as full:
            await start(scene)
        assert full.value.retry_after_s in (after_s, after_s + 1)


# Later.


async def test_a_run_that_is_delayed_waits_until_it_is_due_and_can_be_cancelled(scene: Scene) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    delayed, other = await start(scene, not_before=due), await start(scene, not_before=due)
    assert await look(scene) == []
    async with scene.database.transaction("read", DEFAULT_TENANT) as session:
        status = await runs.status(session, delayed)
    assert (status["state"], status["due_at"], status["phase"]) == ("queued", due, "Queued")
    assert status["queued_why"] == f"it is to begin at {due:%Y-%m-%d %H:%M:%S} UTC"
    await scene.cancel(other)
    await scene.rows("update surefoot.segments set queued_at = queued_at - interval '1 hour' where state = 'delayed'")
    assert await look(scene) == [delayed]
    assert await place(scene, await start(scene, not_before=datetime.now(UTC) - timedelta(hours=1))) == "open"


async def test_a_run_that_is_delayed_is_stuck_only_from_when_it_is_due_on(scene: Scene) -> None:
    await scene.rows("update surefoot.agents set limits = %s", json.dumps({"queued_s_max": 300}))
    run_id = await start(scene, not_before=datetime.now(UTC) + timedelta(hours=1))
    await scene.rows("update surefoot.run_states set entered_at = entered_at - interval '30 minutes'")
    async with scene.database.transaction("read", DEFAULT_TENANT) as session:
        assert await runs.stuck(session, DEFAULT_TENANT, limit=9) == []
    await limit(scene, running_max=0)
    await scene.rows(
        "update surefoot.segments set queued_at = queued_at - interval '70 minutes' where state = 'delayed'"
    )
    await look(scene)
    async with scene.database.transaction("read", DEFAULT_TENANT) as session:
        [row] = await runs.stuck(session, DEFAULT_TENANT, limit=9)
    assert row["run_id"] == run_id
    assert row["why"] == "limit of tenant default: 0 running"
    assert "surefoot limits set" in row["what_to_do"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"priority": 101}, "A priority is from -100 to 100"),
        ({"not_before": datetime(2040, 1, 1)}, "has no time zone"),
        ({"not_before": datetime(2140, 1, 1, tzinfo=UTC)}, "A run may be delayed by at most 366 days"),
    ],
)
async def test_what_cannot_be_is_refused(scene: Scene, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        await start(scene, **more)
    with pytest.raises(psycopg.errors.DatabaseError) as refused:
        await scene.rows("select surefoot.start_run(%s, '{}', priority => -101)", AGENT)
    assert refused.value.sqlstate == "SF006"
    assert await scene.rows("select count(*) from surefoot.runs") == [(0,)]


# Why.


async def test_each_run_that_is_queued_says_why(scene_of_two: Scene) -> None:
    scene = scene_of_two
    await slots(scene, 1)
    first, second = await start(scene), await start(scene, B)
    assert await why(scene, first) == "it is its turn: a worker takes it up"
    await look(scene)
    assert await why(scene, second, B) == "the live workers have no room: runs of others are before it"
    await limit(scene, None, running_max=1)
    await look(scene)
    assert await why(scene, second, B) == "limit of all tenants: 1 running"
    await limit(scene, B, AGENT, running_max=0)
    assert await why(scene, second, B) == "limit of tenant b for agent report: 0 running"
    async with scene.database.transaction("read", B) as session:
        [row] = await admitting.status(session, B)
    assert (row["agent"], row["running"], row["waiting"], row["delayed"]) == (AGENT, 0, 1, 0)
    assert row["why"] == "limit of tenant b for agent report: 0 running"
    await scene.rows("delete from surefoot.limits")
    await scene.rows("update surefoot.workers set agents = '{other}'")
    assert await why(scene, second, B) == "no live worker serves agent report"
    await over(scene, first)
    assert await look(scene) == []
    async with scene.database.all_tenants("register") as session:
        await register(session, WorkerId("new"))
    assert await look(scene) == [second]


# Races.


async def test_two_dispatchers_and_all_that_goes_on_beside_them_never_exceed_a_limit_and_lose_no_turn(
    scene: Scene, pace: Pace
) -> None:
    """Each seed has a tenant of its own, with two that may run."""

    async def play(seed: int) -> None:
        tenant = Tenant(f"t{seed}")
        await scene.rows("insert into surefoot.tenants (tenant) values (%s)", tenant)
        await limit(scene, tenant, running_max=2)
        begun = [await start(scene, tenant) for _ in range(3)]
        await look(scene)
        stage = scene.stage(seed)
        for i in range(stage.random.randint(1, 2)):
            stage.actor(f"dispatcher {i}", lambda: look(scene))
        stage.actor("start", lambda: start(scene, tenant))
        run_id = stage.random.choice(begun)
        stage.actor("cancel", lambda: cancel(scene, run_id, tenant))
        [[going]] = await scene.rows(
            "select run_id from surefoot.segments where tenant = %s and state = 'open' order by run_id limit 1", tenant
        )
        stage.actor("end", lambda: execute(scene, going))
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            actor.outcome()
        [[running]] = await scene.rows(NOW, tenant, "open")
        assert running <= 2, f"seed {seed}:\n" + "\n".join(stage.trace)
        await look(scene)
        [[running]], [[waiting]] = await scene.rows(NOW, tenant, "open"), await scene.rows(NOW, tenant, "waiting")
        assert running <= 2
        assert running == 2 or not waiting, f"seed {seed}: a turn was lost\n" + "\n".join(stage.trace)
        assert await scene.rows(TWICE, tenant) == [(0,)], "the engine has what was not admitted"
        await scene.rows("update surefoot.limits set running_max = 0 where tenant = %s", tenant)

    # One at a time: a dispatcher of another one would have the lock while a look here is to admit.
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), play, lanes=1)


async def cancel(scene: Scene, run_id: RunId, tenant: Tenant) -> None:
    async with scene.database.transaction("run.cancel", tenant) as session:
        try:
            await runs.cancel(session, run_id, by="ada", reason="asked for")
        except Conflict:
            await session.rollback()  # it was over before


async def execute(scene: Scene, run_id: RunId) -> None:
    await scene.dequeue(run_id, 0, ADA)
    begun = await scene.begin(run_id, 0, ADA)
    if begun is not None:
        await scene.end(begun.execution, Ending(state=RunState.QUEUED, turns=1, usage={}))


async def test_control_without_the_lock_two_dispatchers_exceed_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each admits another run: one of them has not seen the one that has come meanwhile and goes first."""
    mine = "pg_try_advisory_xact_lock(hashtext('surefoot.dispatch'))"
    monkeypatch.setattr(admitting, "_QUEUE", changed("queue", ("lock_and_ripen", mine, "true")))
    exceeded = []
    for seed in range(SEED, SEED + 30):
        tenant = Tenant(f"t{seed}")
        await scene.rows("insert into surefoot.tenants (tenant) values (%s)", tenant)
        await limit(scene, tenant, running_max=1)
        await start(scene, tenant)
        stage = scene.stage(seed)
        stage.actor("dispatcher 1", lambda: look(scene))
        stage.actor("dispatcher 2", lambda: look(scene))
        stage.actor("urgent", lambda tenant=tenant: start(scene, tenant, priority=1))
        await stage.play()
        [[running]] = await scene.rows(NOW, tenant, "open")
        exceeded += [seed] if running > 1 else []
    assert exceeded
