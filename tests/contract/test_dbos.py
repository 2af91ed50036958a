"""What Surefoot relies on in DBOS 3.4.0: recovery, steps, the queue, and SQL that joins our transactions."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from dbos._utils import retriable_postgres_exception
from psycopg.rows import dict_row
from sqlalchemy.exc import OperationalError

from tests import forked
from tests.contract import dbos_cases
from tests.forked import call

WORKFLOW = "run:0"


def rows(url: str, query: str, *parameters: object) -> list[dict[str, Any]]:
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        cursor = connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def enqueue(url: str, workflow_id: str = WORKFLOW) -> None:
    rows(url, "select surefoot.enqueue_segment(%s, %s)", *workflow_id.split(":"))


def workflow(url: str, workflow_id: str = WORKFLOW) -> dict[str, Any]:
    [row] = rows(
        url,
        "select status, executor_id, application_version, queue_name, recovery_attempts from dbos.workflow_status "
        "where workflow_uuid = %s",
        workflow_id,
    )
    return row


def outputs(url: str, workflow_id: str = WORKFLOW) -> Sequence[tuple[str, Any]]:
    found = rows(
        url,
        "select function_name, output::jsonb as output from dbos.operation_outputs where workflow_uuid = %s "
        "order by function_id",
        workflow_id,
    )
    return [(row["function_name"], row["output"]) for row in found]


@pytest.fixture
def left_pending(database_url: str) -> str:
    """A database in which executor `a` of version `v1` was killed inside the third step of a workflow."""
    enqueue(database_url)
    assert forked.exit_code(dbos_cases.killed_in_a_step, database_url, "a", "v1") == -9
    assert workflow(database_url) == {
        "status": "PENDING",
        "executor_id": "a",
        "application_version": "v1",
        "queue_name": "surefoot",
        "recovery_attempts": 1,
    }
    assert outputs(database_url) == [("same", 1), ("same", 2)]
    return database_url


def test_recovery_is_conditional_on_the_executor_and_on_the_own_version(left_pending: str) -> None:
    before = workflow(left_pending)
    assert call(dbos_cases.recovered, left_pending, "b", "v1", "somebody else") == []
    assert call(dbos_cases.recovered, left_pending, "b", "v2", "a") == []
    assert workflow(left_pending) == before
    assert call(dbos_cases.recovered, left_pending, "b", "v1", "a") == [WORKFLOW]
    assert workflow(left_pending) == {**before, "status": "ENQUEUED"}, "the queue and the attempts are kept"
    assert call(dbos_cases.recovered, left_pending, "c", "v1", "a") == []
    assert workflow(left_pending) == {**before, "status": "ENQUEUED"}, "asked again, nothing moves"


def test_recovery_is_safe_to_repeat_while_and_after_another_executes_it(left_pending: str) -> None:
    seen = call(dbos_cases.taken_over, left_pending, "b", "v1", "a", WORKFLOW)
    assert seen["recovered"] == [[WORKFLOW], [], []]
    assert seen["ran"] == ["last"], "recorded steps are replayed, in their order, whatever their body"
    assert seen["values"] == [1, 2, "new"]
    assert workflow(left_pending) == {
        "status": "SUCCESS",
        "executor_id": "b",
        "application_version": "v1",
        "queue_name": "surefoot",
        "recovery_attempts": 2,
    }


def test_what_is_given_another_version_is_recovered_by_that_one_with_its_history(left_pending: str) -> None:
    """How the router moves what no worker of its version is left for."""
    rows(left_pending, "update dbos.workflow_status set application_version = 'v2' where workflow_uuid = %s", WORKFLOW)
    assert call(dbos_cases.recovered, left_pending, "c", "v1", "a") == []
    seen = call(dbos_cases.taken_over, left_pending, "b", "v2", "a", WORKFLOW)
    assert (seen["ran"], seen["values"]) == (["last"], [1, 2, "new"])
    assert workflow(left_pending)["status"] == "SUCCESS"


def test_a_step_is_found_by_its_position_and_refused_under_another_name(left_pending: str) -> None:
    assert call(dbos_cases.renamed, left_pending, "b", "v1", "a", WORKFLOW) == []
    assert workflow(left_pending)["status"] == "ERROR"
    [row] = rows(left_pending, "select error from dbos.workflow_output where workflow_uuid = %s", WORKFLOW)
    assert "DBOSUnexpectedStepError" in row["error"]
    assert "other" in row["error"]


def test_a_base_exception_in_a_step_leaves_the_workflow_pending_and_unrecorded(database_url: str) -> None:
    enqueue(database_url)
    call(dbos_cases.raised, database_url, WORKFLOW, "BaseException")
    assert workflow(database_url)["status"] == "PENDING"
    assert outputs(database_url) == [("good", 1)]


def test_an_exception_in_a_step_is_recorded_as_its_result_and_ends_the_workflow(database_url: str) -> None:
    """Why being fenced is no Exception: recovery would find nothing to hand over."""
    enqueue(database_url)
    call(dbos_cases.raised, database_url, WORKFLOW, "Exception")
    assert workflow(database_url)["status"] == "ERROR"
    recorded = rows(database_url, "select function_name, error from dbos.operation_outputs order by function_id")
    assert [row["function_name"] for row in recorded] == ["good", "bad"]
    assert "away" in recorded[1]["error"]


def test_a_workflow_that_names_no_version_is_claimed_by_the_latest_one(database_url: str) -> None:
    call(dbos_cases.registered, database_url, "v2")
    assert call(dbos_cases.claimed_by_the_latest_version_only, database_url, WORKFLOW) == ("ENQUEUED", "SUCCESS")


def test_a_cancelled_workflow_is_terminal_and_nothing_recovers_it(left_pending: str) -> None:
    assert call(dbos_cases.cancelled, left_pending, WORKFLOW) == "CANCELLED"
    assert call(dbos_cases.recovered, left_pending, "b", "v1", "a") == []


def test_what_the_engine_writes_is_json_and_never_pickle(left_pending: str) -> None:
    call(dbos_cases.taken_over, left_pending, "b", "v1", "a", WORKFLOW)
    said = rows(
        left_pending,
        "select serialization, count(*) as n from dbos.operation_outputs group by 1 "
        "union all select serialization, count(*) from dbos.workflow_status group by 1 order by 1",
    )
    assert {row["serialization"] for row in said} == {"surefoot_json", "portable_json"}


def test_who_stops_claiming_ends_what_it_has_and_takes_nothing_new(database_url: str) -> None:
    enqueue(database_url)
    assert call(dbos_cases.stops_claiming, database_url, WORKFLOW, "late:0") == {
        "idle while it goes on": False,
        "idle after it": True,
        "statuses": ["SUCCESS", "ENQUEUED"],
    }


def test_a_slot_that_a_dead_executor_holds_is_free_once_its_work_is_handed_over(left_pending: str) -> None:
    seen = call(dbos_cases.slots_of_the_dead, left_pending, "a", WORKFLOW, "other:0")
    assert seen["before"] == ["PENDING", "ENQUEUED"], "until then it counts against everybody's concurrency"
    assert sorted(seen["ran"]) == ["other:0", WORKFLOW]


# Its connections.


def test_a_creator_opens_every_connection_and_idle_transactions_are_bounded_there_too(database_url: str) -> None:
    """A frozen worker must not hold the locks that its successor needs."""
    assert call(dbos_cases.its_connections, database_url) == {
        "application_name": "contract",
        "idle_in_transaction_session_timeout": f"{dbos_cases.IDLE_TRANSACTION_S:g}s",
    }


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (psycopg.errors.SqlclientUnableToEstablishSqlconnection("whatever the words"), True),
        (psycopg.errors.AdminShutdown("terminating connection"), True),
        (psycopg.errors.DeadlockDetected("deadlock"), True),
        (psycopg.OperationalError("no such file or directory"), False),
        (psycopg.errors.UniqueViolation("twice"), False),
    ],
)
def test_the_engine_waits_for_a_database_that_is_away_by_the_sqlstate(error: psycopg.Error, waits: bool) -> None:
    wrapped = OperationalError("select 1", {}, error)
    assert retriable_postgres_exception(wrapped) is waits


# SQL.


def test_enqueue_workflow_has_the_parameters_that_are_named(database_url: str) -> None:
    [row] = rows(
        database_url,
        "select pg_get_function_arguments(oid) as arguments, pg_get_function_result(oid) as result from pg_proc "
        "where pronamespace = 'dbos'::regnamespace and proname = 'enqueue_workflow'",
    )
    for argument in (
        "workflow_name text",
        "queue_name text",
        "positional_args json[] DEFAULT ARRAY[]::json[]",
        "workflow_id text DEFAULT NULL::text",
        "app_version text DEFAULT NULL::text",
    ):
        assert argument in row["arguments"].split(", ")
    assert row["result"] == "text"


def test_enqueue_workflow_joins_the_callers_transaction(database_url: str) -> None:
    count = (
        "select count(*) as n from dbos.workflow_status s join dbos.workflow_input i using (workflow_uuid) "
        "where status = 'ENQUEUED'"
    )
    with psycopg.connect(database_url) as ours:
        ours.execute("select surefoot.enqueue_segment('run', 0)")
        assert rows(database_url, count) == [{"n": 0}], "nobody sees it before the commit"
        ours.rollback()
        assert rows(database_url, count) == [{"n": 0}]
        ours.execute("select surefoot.enqueue_segment('run', 0)")
        ours.commit()
    assert rows(database_url, count) == [{"n": 1}]
    enqueue(database_url)
    assert rows(database_url, count) == [{"n": 1}], "the same id again is the same workflow"


COLUMNS = {
    "workflow_uuid": "text",
    "status": "text",
    "name": "text",
    "executor_id": "text",
    "application_version": "text",
    "queue_name": "text",
    "serialization": "text",
    "updated_at": "bigint",
    "completed_at": "bigint",
}


def test_workflow_status_has_the_columns_our_sql_uses(database_url: str) -> None:
    found = rows(
        database_url,
        "select column_name, data_type from information_schema.columns "
        "where table_schema = 'dbos' and table_name = 'workflow_status'",
    )
    types = {row["column_name"]: row["data_type"] for row in found}
    assert {name: types.get(name) for name in COLUMNS} == COLUMNS


def test_every_table_with_a_serialization_refuses_pickle(database_url: str) -> None:
    """Also one that a new version of the engine brings: it has to be added to `migrate`."""
    tables = rows(
        database_url,
        "select table_name from information_schema.columns "
        "where table_schema = 'dbos' and column_name = 'serialization'",
    )
    refusing = rows(
        database_url,
        "select conrelid::regclass::text as name from pg_constraint "
        "where conname = 'surefoot_no_pickle' and convalidated and contype = 'c'",
    )
    assert {f"dbos.{row['table_name']}" for row in tables} == {row["name"] for row in refusing}
    insert = (
        "insert into dbos.operation_outputs (workflow_uuid, function_id, function_name, output, serialization) "
        "values ('w', 0, 's', 'gASVAAA=', %s)"
    )
    with pytest.raises(psycopg.errors.CheckViolation, match="surefoot_no_pickle"):
        rows(database_url, insert, "py_pickle")
    rows(database_url, insert, "surefoot_json")
