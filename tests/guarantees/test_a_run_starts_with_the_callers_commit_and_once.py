"""A start is a part of the caller's transaction; the same key and input is the same run, another input is refused."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import until
from tests.stage import Stage
from transactions import DEFAULT_TENANT

INPUT = {"turns": [[["note", {"text": "a"}]]]}
OTHER = {"turns": [[["note", {"text": "b"}]]]}
SQL = "select surefoot.start_run('scripted', %s::jsonb, %s)"

Start = Callable[[psycopg.Connection], str]


def test_a_run_starts_with_the_callers_commit_and_once(stage: Stage) -> None:
    stage.working()
    assert left_by_a_rollback(stage, start_in_the_transaction) == NOTHING
    with psycopg.connect(stage.database_url) as connection:
        connection.execute("create table orders (run_id text)")
        run_id = start_in_the_transaction(connection)
        connection.execute("insert into orders values (%s)", (run_id,))
    stage.until_state(run_id, "completed")
    assert stage.rows("select count(*) as n from surefoot.runs join orders using (run_id)")[0]["n"] == 1


async def test_started_in_a_session_of_the_caller_it_is_gone_with_the_rollback(stage: Stage) -> None:
    stage.announce()
    surefoot = Surefoot(stage.database_url, AGENTS)
    async with surefoot.database.transaction("caller", DEFAULT_TENANT) as session:
        await surefoot.start("scripted", INPUT, session=session)
        await session.rollback()
    await surefoot.close()
    assert left(stage) == NOTHING


def test_the_same_key_is_the_same_run_and_another_input_is_refused(stage: Stage) -> None:
    _, api = stage.serve()
    run_id = stage.start("scripted", json.dumps(INPUT), "order-1")
    spaced = json.dumps(INPUT, indent=3)
    assert stage.start("scripted", spaced, "order-1") == run_id
    with pytest.raises(psycopg.Error, match="already started run") as refused:
        stage.start("scripted", json.dumps(OTHER), "order-1")
    assert refused.value.sqlstate == "SF001"
    headers = {"Idempotency-Key": "order-1"}
    same = api.post("/runs", json={"agent": "scripted", "input": INPUT}, headers=headers)
    assert (same.status_code, same.json()["run_id"]) == (202, run_id)
    other = api.post("/runs", json={"agent": "scripted", "input": OTHER}, headers=headers)
    assert other.status_code == 409
    assert "use a new key" in other.json()["error"]
    assert api.post("/runs", json={"agent": "scripted", "input": INPUT}).json()["run_id"] != run_id
    stage.until_state(run_id, "completed")
    assert len(stage.notes(run_id)) == 1


def test_two_who_start_it_at_the_same_moment_start_one(stage: Stage) -> None:
    stage.announce()
    blocked = (
        "select count(*) as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    with ThreadPoolExecutor() as pool, psycopg.connect(stage.database_url) as first:
        run_id = start_in_the_transaction(first)
        second = pool.submit(stage.start, "scripted", json.dumps(INPUT), "order-1")
        until("the second one waits for the first", lambda: stage.rows(blocked)[0]["n"] == 1)
        first.commit()
        assert second.result() == run_id
    assert left(stage)["runs"] == 1


def test_control_a_start_of_its_own_transaction_survives_the_rollback(stage: Stage) -> None:
    stage.announce()
    found = left_by_a_rollback(stage, start_in_another_transaction)
    assert found == {"runs": 1, "segments": 1, "events": 1, "engine": 1}


def test_control_without_the_constraint_the_same_key_starts_two(stage: Stage) -> None:
    stage.announce()
    stage.rows("alter table surefoot.runs drop constraint runs_tenant_agent_idempotency_key_key")
    first, second = (stage.start("scripted", json.dumps(INPUT), "order-1") for _ in range(2))
    assert first != second


NOTHING = {"runs": 0, "segments": 0, "events": 0, "engine": 0}


def start_in_the_transaction(connection: psycopg.Connection) -> str:
    row = connection.execute(SQL, (json.dumps(INPUT), "order-1")).fetchone()
    assert row is not None
    return row[0]


def start_in_another_transaction(connection: psycopg.Connection) -> str:
    with psycopg.connect(connection.info.dsn) as another:
        return start_in_the_transaction(another)


def left_by_a_rollback(stage: Stage, start: Start) -> dict[str, int]:
    """What is there after a caller started a run and rolled back."""
    with psycopg.connect(stage.database_url) as connection:
        start(connection)
        connection.rollback()
    return left(stage)


def left(stage: Stage) -> dict[str, int]:
    names = {"runs": "surefoot.runs", "segments": "surefoot.segments", "events": "surefoot.events"}
    names["engine"] = "dbos.workflow_status"
    return {name: stage.rows(f"select count(*) as n from {table}")[0]["n"] for name, table in names.items()}
