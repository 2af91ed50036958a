"""What people see of a run: its phase, how long it was in which state, and that it is in one for too long."""

import json
from typing import Any

import psycopg
import pytest

from steps import RunLimits
from tests.races.scenes import ADA, AGENT, Scene
from transactions import DEFAULT_TENANT, Execution, RunId, RunState, cancelling, number_done, runs, segments
from transactions.segments import Ending
from transactions.states import RUN_TRANSITIONS

LONG_AGO = (
    "with places as (update surefoot.segments set queued_at = clock_timestamp() - interval '1 hour')"
    " update surefoot.run_states set entered_at = clock_timestamp() - interval '1 hour' where left_at is null"
)


async def seen(scene: Scene, run_id: RunId) -> list[tuple[Any, ...]]:
    return await scene.rows(
        "select n, state, left_at is null from surefoot.run_states where run_id = %s order by n", run_id
    )


async def test_each_state_is_kept_with_its_time_by_the_commit_that_changes_it(scene: Scene) -> None:
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    assert await seen(scene, waiting.run_id) == [(1, "queued", False), (2, "running", False), (3, "waiting", True)]
    await scene.decide(waiting.action(0), "approve")
    await scene.cancel(waiting.run_id)
    assert (await seen(scene, waiting.run_id))[3:] == [(4, "queued", False), (5, "cancelled", False)]
    gaps = await scene.rows(
        "select count(*) from surefoot.run_states a join surefoot.run_states b on b.run_id = a.run_id and b.n = a.n + 1"
        " where b.entered_at < a.left_at"
    )
    assert gaps == [(0,)]
    times = await scene.rows(
        "select state, entered, seconds >= 0 from surefoot.run_times where run_id = %s order by state", waiting.run_id
    )
    assert times == [("cancelled", 1, True), ("queued", 2, True), ("running", 1, True), ("waiting", 1, True)]
    over = await scene.rows(
        "select seconds from surefoot.run_times where run_id = %s and state = 'cancelled'", waiting.run_id
    )
    assert over == [(0.0,)]


async def test_control_without_the_trigger_no_time_is_kept(scene: Scene) -> None:
    await scene.rows("alter table surefoot.runs disable trigger keep_time")
    execution = await scene.running()
    assert await seen(scene, execution.run_id) == [(1, "queued", True)]
    await scene.rows("alter table surefoot.runs enable trigger keep_time")


async def put_into(scene: Scene, state: RunState) -> RunId:
    if state is RunState.QUEUED:
        return await scene.start()
    if state is RunState.WAITING:
        waiting = await scene.about_to_wait(["approval"])
        await scene.end(waiting.execution, waiting.ending())
        return waiting.run_id
    execution = await scene.running()
    if state is RunState.CANCELLING:
        await scene.cancel(execution.run_id)
    if state is RunState.HELD:
        await scene.end(execution, Ending(state=state, turns=1, usage={}, reason="put aside"))
    return execution.run_id


@pytest.mark.parametrize(
    ("state", "why", "what_to_do"),
    [
        (RunState.QUEUED, "no worker has taken it up", "surefoot doctor"),
        (RunState.RUNNING, f"worker {ADA} has it since ", "see the log of its worker"),
        (RunState.WAITING, "approval of ", "decide: see `surefoot approvals list`"),
        (RunState.HELD, "put aside", "surefoot runs release"),
        (RunState.CANCELLING, f"cancelled by ada: asked for, worker {ADA} has it since ", "see its log"),
    ],
)
async def test_a_run_that_is_in_a_state_beyond_its_limit_is_stuck(
    scene: Scene, state: RunState, why: str, what_to_do: str
) -> None:
    limits = dict.fromkeys(RunLimits().of_states, 1e6) | {f"{state}_s_max": 3000}
    await scene.rows("update surefoot.agents set limits = %s where name = %s", json.dumps(limits), AGENT)
    run_id = await put_into(scene, state)
    assert await stuck(scene, run_id) == []
    await scene.rows(LONG_AGO)
    [row] = await stuck(scene, run_id)
    assert (row["state"], row["limit_s"], row["agent"]) == (state, 3000, AGENT)
    assert row["seconds"] >= 3600
    assert why in row["why"]
    assert what_to_do in row["what_to_do"]


async def stuck(scene: Scene, run_id: RunId) -> list[Any]:
    async with scene.database.transaction("read", DEFAULT_TENANT) as session:
        return [row for row in await runs.stuck(session, DEFAULT_TENANT, limit=1000) if row["run_id"] == run_id]


def test_the_limits_of_agents_that_announce_none_are_the_same(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "insert into surefoot.agents (tenant, name, version, input_schema) values ('default', 'old', '1', '{}')"
        )
        [(limits,)] = connection.execute("select limits from surefoot.agents where name = 'old'").fetchall()
        connection.rollback()
    assert limits == RunLimits().of_states
    assert {f"{state}_s_max" for state in RunState if RUN_TRANSITIONS[state]} == set(limits)


def test_it_costs_nothing_that_a_hundred_thousand_runs_are_over(database_url: str) -> None:
    """They are found by an index that has only what is open."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute(
            "insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash, state, output, ended_at)"
            " select 'r' || n, 'default', 'a', 'p', '1', 'h', 'completed', '1', now() from generate_series(1, 100000) n"
        )
        connection.execute(
            "insert into surefoot.run_states (run_id, n, tenant, state, entered_at, left_at)"
            " select run_id, 1, tenant, state, ended_at, ended_at from surefoot.runs"
        )
        connection.execute("analyze surefoot.runs, surefoot.run_states")
        [(plan,)] = connection.execute("explain (format json) select * from surefoot.stuck_runs").fetchall()
    scans = list(_scans(plan[0]["Plan"]))
    assert ("run_states", "run_states_open") in scans
    assert not [table for table, index in scans if table in ("runs", "run_states") and index is None], scans


def _scans(node: dict[str, Any]) -> Any:
    if "Relation Name" in node or "Index Name" in node:
        yield node.get("Relation Name"), node.get("Index Name")
    for child in node.get("Plans", ()):
        yield from _scans(child)


async def test_a_phase_is_that_of_the_last_turn_that_names_one_but_for_what_the_state_says(scene: Scene) -> None:
    run_id = await scene.start()
    assert await phase(scene, run_id) == "Queued"
    await scene.dequeue(run_id, 0, ADA)
    begun = await scene.begin(run_id, 0, ADA)
    assert begun is not None
    execution = begun.execution
    assert await phase(scene, run_id) is None
    assert await turn(scene, execution, 1, "Analysing") == ["turn.recorded", "run.phase"]
    assert await turn(scene, execution, 2, None) == ["turn.recorded"]
    assert await turn(scene, execution, 3, "Analysing") == ["turn.recorded"]
    assert await phase(scene, run_id) == "Analysing"
    await scene.cancel(run_id)
    assert await phase(scene, run_id) == "Cancelling"
    await scene.end(execution, Ending(state=RunState.CANCELLED, turns=3, usage={}))
    assert await phase(scene, run_id) == "Cancelled"
    waiting = await scene.about_to_wait(["approval"])
    await turn(scene, waiting.execution, 1, "Publishing")
    await scene.end(waiting.execution, waiting.ending())
    assert await phase(scene, waiting.run_id) == "Awaiting approval"
    await scene.decide(waiting.action(0), "approve")
    assert await phase(scene, waiting.run_id) == "Publishing"


async def turn(scene: Scene, execution: Execution, number: int, named: str | None) -> list[str]:
    async with scene.database.transaction("segment.turn", DEFAULT_TENANT) as session:
        told = await segments.record_turn(session, execution, turns=number, usage={}, phase=named)
        await number_done(session, execution, *told)
    return [event.kind for event in told]


async def phase(scene: Scene, run_id: RunId) -> str | None:
    async with scene.database.transaction("read", DEFAULT_TENANT) as session:
        return (await runs.status(session, run_id))["phase"]


async def test_of_some_runs_those_that_are_being_cancelled(scene: Scene) -> None:
    execution, other = await scene.running(), await scene.running()
    await scene.cancel(execution.run_id)
    async with scene.database.all_tenants("watchdog.look") as session:
        assert await cancelling.among(session, [execution.run_id, other.run_id]) == [execution.run_id]
