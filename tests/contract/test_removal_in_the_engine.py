"""What removing by SQL relies on in DBOS 3.4.0: which tables hold what of a workflow, and what its own call deletes."""

from typing import Any

import psycopg
import pytest
from dbos import DBOSClient
from psycopg.rows import dict_row
from sqlalchemy import text

from steps.serializer import TypedJson
from transactions import Database, leftovers
from transactions.leftovers import FIRST_ID, FIRST_OF_ENGINE
from transactions.removal import After

# The column by which a table names a workflow, and whether the engine's own foreign key deletes the rows with it.
NAMES_A_WORKFLOW = {
    "workflow_status": ("workflow_uuid", None),
    "workflow_input": ("workflow_uuid", False),
    "workflow_output": ("workflow_uuid", False),
    "operation_outputs": ("workflow_uuid", False),
    "notifications": ("destination_uuid", True),
    "workflow_events": ("workflow_uuid", True),
    "workflow_events_history": ("workflow_uuid", True),
    "streams": ("workflow_uuid", True),
}
# These name none.
OTHERS = {"application_versions", "dbos_migrations", "event_dispatch_kv", "queues", "workflow_schedules"}
TERMINAL = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
GOING_ON = ("PENDING", "ENQUEUED", "DELAYED")


def rows(url: str, query: str, *parameters: object) -> list[dict[str, Any]]:
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        cursor = connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def test_every_table_of_the_engine_is_known(database_url: str) -> None:
    """Also one that a new version brings: it has to be added to what is removed, or to those that name no workflow."""
    found = rows(
        database_url, "select relname from pg_class where relnamespace = 'dbos'::regnamespace and relkind = 'r'"
    )
    assert {row["relname"] for row in found} == {*NAMES_A_WORKFLOW, *OTHERS}
    cascading = rows(
        database_url,
        "select conrelid::regclass::text as name from pg_constraint where contype = 'f' and confdeltype = 'c'"
        " and confrelid = 'dbos.workflow_status'::regclass",
    )
    assert {row["name"] for row in cascading} == {
        f"dbos.{name}" for name, (_, goes) in NAMES_A_WORKFLOW.items() if goes
    }


def fill(url: str, workflow_id: str, status: str = "SUCCESS", *, settled: bool = True) -> None:
    """A workflow of a segment with a row in every table that names one."""
    run_id, n = workflow_id.split(":")
    rows(url, "insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash)"
         " values (%s, 'default', 'a', 'p', '1', 'h') on conflict do nothing", run_id)  # fmt: skip
    rows(
        url,
        "insert into surefoot.segments (run_id, n, tenant, state) values (%s, %s, 'default', 'open')",
        run_id, int(n),
    )  # fmt: skip
    if settled:
        rows(
            url,
            "update surefoot.segments set state = 'settled', outcome = 'completed', turns = 1,"
            " settled_at = now() - interval '1 hour' where run_id = %s and n = %s",
            run_id, int(n),
        )  # fmt: skip
    rows(
        url,
        "insert into dbos.workflow_status (workflow_uuid, status, name, completed_at) values (%s, %s,"
        " 'surefoot.segment', case when %s then 1 end)",
        workflow_id, status, status in TERMINAL,
    )  # fmt: skip
    for insert in (
        "workflow_input (workflow_uuid, inputs) values (%s, '1')",
        "workflow_output (workflow_uuid, output) values (%s, '1')",
        "operation_outputs (workflow_uuid, function_id, function_name) values (%s, 0, 's')",
        "operation_outputs (workflow_uuid, function_id, function_name) values (%s, 1, 's')",
        "notifications (destination_uuid, message) values (%s, 'm')",
        "workflow_events (workflow_uuid, key, value) values (%s, 'k', 'v')",
        "workflow_events_history (workflow_uuid, function_id, key, value) values (%s, 0, 'k', 'v')",
        "streams (workflow_uuid, key, value, \"offset\") values (%s, 'k', 'v', 0)",
    ):
        rows(url, f"insert into dbos.{insert}", workflow_id)


def left(url: str) -> dict[str, set[str]]:
    """The workflows that each table names."""
    return {
        table: {row["id"] for row in rows(url, f"select {column} as id from dbos.{table}")}
        for table, (column, _) in NAMES_A_WORKFLOW.items()
    }


def only(*workflow_ids: str) -> dict[str, set[str]]:
    """That every table names just these."""
    return {table: set(workflow_ids) for table in NAMES_A_WORKFLOW}


async def remove(database: Database, *, keep_s: float = 60, limit: int = 10) -> int:
    after: After | None = FIRST_OF_ENGINE
    items = 0
    while after is not None:
        async with database.removing("retention.batch") as session:
            batch = await leftovers.of_engine(session, after, keep_s=keep_s, limit=limit)
        items, after = items + batch.items, batch.next
    return items


async def test_what_is_removed_by_sql_is_what_the_engines_own_call_removes(
    database: Database, database_url: str
) -> None:
    fill(database_url, "r:0")
    fill(database_url, "r:1")
    client = DBOSClient(system_database_url=database_url, application_name="surefoot", serializer=TypedJson())
    try:
        client.delete_workflows(["r:0"])
    finally:
        client.destroy()
    assert left(database_url) == only("r:1")
    assert await remove(database) == 1
    assert left(database_url) == only()


async def test_only_what_is_terminal_there_and_settled_here_for_long_enough(
    database: Database, database_url: str
) -> None:
    for n, status in enumerate((*TERMINAL, *GOING_ON)):
        fill(database_url, f"r:{n}", status)
    fill(database_url, "open:0", settled=False)
    fill(database_url, "young:0")
    rows(database_url, "update surefoot.segments set settled_at = now() where run_id = 'young'")
    changes = {
        "just:0": "completed_at = extract(epoch from now()) * 1000",
        "another:0": "name = 'of.another.application'",
    }
    for workflow_id, change in changes.items():
        fill(database_url, workflow_id)
        rows(database_url, f"update dbos.workflow_status set {change} where workflow_uuid = %s", workflow_id)
    assert await remove(database, limit=2) == len(TERMINAL)
    stay = {f"r:{n + len(TERMINAL)}" for n in range(len(GOING_ON))} | {"open:0", "young:0", "just:0", "another:0"}
    assert left(database_url) == only(*stay)
    (kept,) = rows(database_url, "select count(*) as segments from surefoot.segments")
    assert kept["segments"] == len(TERMINAL) + len(stay), "our rows stay, so that no id is used again"


@pytest.mark.parametrize("guard", ["s.state <> 'settled' or", "or s.settled_at > statement_timestamp()"])
async def test_control_without_a_guard_more_goes(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    fill(database_url, "open:0", settled=False)
    fill(database_url, "young:0")
    rows(database_url, "update surefoot.segments set settled_at = now() where run_id = 'young'")
    name = "remove_of_engine_if_segment_settled"
    sql = leftovers._LEFTOVERS[name].text
    assert guard in sql
    spoilt = sql.replace(guard, "" if guard.endswith("or") else "or false and s.settled_at > statement_timestamp()")
    monkeypatch.setattr(leftovers, "_LEFTOVERS", {**leftovers._LEFTOVERS, name: text(spoilt)})
    assert await remove(database) == 1


async def test_what_the_engine_left_behind_is_swept_page_by_page(database: Database, database_url: str) -> None:
    for n in range(5):
        fill(database_url, f"r:{n}")
    for statement in (
        "create table dbos.datasource_outputs (workflow_id text, step_id int, primary key (workflow_id, step_id))",
        "insert into dbos.datasource_outputs select 'r:' || n, s from generate_series(0, 4) n, generate_series(0, 1) s",
        "delete from dbos.workflow_status where workflow_uuid in ('r:0', 'r:2', 'r:4')",  # as others may have it
    ):
        rows(database_url, statement)
    after: After | None = FIRST_ID
    removed = batches = 0
    while after is not None:
        async with database.removing("retention.batch") as session:
            batch = await leftovers.orphans_of_engine(session, after, limit=2)
        removed, batches, after = removed + batch.rows, batches + 1, batch.next
    assert removed == 3 * (1 + 1 + 2 + 2)
    assert batches == 4 * 3
    assert left(database_url) == only("r:1", "r:3")
    of_datasources = rows(database_url, "select distinct workflow_id as id from dbos.datasource_outputs order by 1")
    assert [row["id"] for row in of_datasources] == ["r:1", "r:3"]
