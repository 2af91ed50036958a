"""One key is one run, however many start it at the same moment; what rolls back has started nothing."""

import asyncio
import json
import os

import psycopg
import pytest

from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import AGENT, Scene
from transactions import DEFAULT_TENANT, Conflict, Forbidden, RunId, Tenant, UnknownAgent, runs

B = Tenant("b")
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
_NOTHING = (
    "select (select count(*) from surefoot.runs), (select count(*) from surefoot.segments),"
    " (select count(*) from surefoot.events), (select count(*) from dbos.workflow_status)"
)


async def _start(scene: Scene, key: str | None, *, n: int = 0, agent: str = AGENT, keep: bool = True) -> RunId | None:
    try:
        async with scene.database.transaction("run.start", DEFAULT_TENANT) as session:
            run_id = await runs.start(
                session, agent=agent, input={"n": n}, key=key, tenant=DEFAULT_TENANT, principal="test"
            )
            if not keep:
                raise InterruptedError
            return run_id
    except InterruptedError:
        return None


async def test_twenty_concurrent_starts_with_one_key_are_one_run(scene: Scene) -> None:
    started = await asyncio.gather(*(_start(scene, "key") for _ in range(20)))
    assert len(set(started)) == 1
    assert await scene.rows(_NOTHING) == [(1, 1, 1, 1)]
    seen = await scene.seen(RunId(str(started[0])))
    assert seen["event_seq"] == 1
    with pytest.raises(Conflict, match="another input"):
        await _start(scene, "key", n=2)


async def test_starts_that_commit_and_roll_back_in_any_order(scene: Scene, pace: Pace) -> None:
    """Whoever waits for another start of the key takes over when that one rolls back."""

    async def play(seed: int) -> None:
        stage = scene.stage(seed)
        key = f"key {seed}"
        for i in range(stage.random.randint(2, 4)):
            keep, n = stage.random.random() < 0.6, stage.random.choice((0, 0, 0, 1))
            stage.actor(f"start {i}", lambda keep=keep, n=n: _start(scene, key, n=n, keep=keep))
        with pace.one(stage):
            await stage.play()
        ids = {actor.result for actor in stage.actors if actor.result is not None}
        for actor in stage.actors:
            if not isinstance(actor.error, Conflict):
                actor.outcome()
        found = await scene.rows("select run_id from surefoot.runs where idempotency_key = %s", key)
        assert {run_id for (run_id,) in found} == ids, f"seed {seed}:\n" + "\n".join(stage.trace)
        assert len(ids) <= 1
        for run_id in ids:
            seen = await scene.seen(RunId(run_id))
            assert [e["seq"] for e in seen["events"]] == [1]
            assert [row["id"] for row in seen["engine"]] == [f"{run_id}:0"]

    await in_lanes(range(SEED, SEED + 60), play)


async def test_an_unknown_agent_is_refused(scene: Scene) -> None:
    with pytest.raises(UnknownAgent, match="report"):
        await _start(scene, None, agent="nobody")
    with pytest.raises(psycopg.errors.DatabaseError, match="no agent named") as refused:
        await scene.rows("select surefoot.start_run('nobody', '{}')")
    assert refused.value.sqlstate == "SF002"
    assert await scene.rows(_NOTHING) == [(0, 0, 0, 0)]


async def test_a_start_that_rolls_back_starts_nothing(scene: Scene) -> None:
    async with await psycopg.AsyncConnection.connect(scene.database.url) as anyone:
        await anyone.execute("select surefoot.start_run(%s, %s)", (AGENT, json.dumps({})))
        await anyone.rollback()
    assert await scene.rows(_NOTHING) == [(0, 0, 0, 0)]
    assert await _start(scene, "key", keep=False) is None
    assert await scene.rows(_NOTHING) == [(0, 0, 0, 0)]


async def test_a_start_leaves_the_callers_tenant_as_it_was(scene: Scene) -> None:
    """It may be one statement of a longer transaction, which must go on seeing its own tenant's rows."""
    await scene.rows("insert into surefoot.tenants (tenant) values ('b')")
    async with scene.database.transaction("caller", B) as session:
        mine = await runs.start(session, agent=AGENT, input={}, key=None, tenant=B, principal="test")
        assert (await runs.status(session, mine))["tenant"] == "b"
    async with await psycopg.AsyncConnection.connect(scene.database.url) as anyone:
        await anyone.execute("select surefoot.start_run(%s, %s)", (AGENT, json.dumps({})))
        cursor = await anyone.execute("select current_setting('surefoot.tenant', true)")
        assert await cursor.fetchone() in [(None,), ("",)]


@pytest.mark.parametrize(
    ("bound", "tenant", "words"),
    [
        ("b", "default", 'bound to tenant "b" and may not start a run of tenant "default"'),
        ("default", "b", 'bound to tenant "default" and may not start a run of tenant "b"'),
        ("", "nowhere", 'o tenant named "nowhere": make it with `surefoot tenants create`'),
        ("nowhere", "nowhere", 'o tenant named "nowhere": make it with `surefoot tenants create`'),
    ],
)
async def test_a_start_for_another_tenant_or_for_none_is_refused(
    scene: Scene, bound: str, tenant: str, words: str
) -> None:
    await scene.rows("insert into surefoot.tenants (tenant) values ('b')")
    with pytest.raises(Forbidden, match=words):
        async with scene.database.transaction("caller", Tenant(bound)) as session:
            await runs.start(session, agent=AGENT, input={}, key=None, tenant=Tenant(tenant), principal="test")
    async with await psycopg.AsyncConnection.connect(scene.database.url) as anyone:
        await anyone.execute("select set_config('surefoot.tenant', %s, false)", (bound,))
        with pytest.raises(psycopg.errors.DatabaseError, match=words) as refused:
            await anyone.execute("select surefoot.start_run(%s, '{}', tenant => %s)", (AGENT, tenant))
    assert refused.value.sqlstate == "SF003"
    assert await scene.rows(_NOTHING) == [(0, 0, 0, 0)]
