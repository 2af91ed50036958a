"""No row of the engine is a pickle after runs of several sorts and a kill; one that says it is cannot be written."""

import base64
import pickle

import psycopg
import pytest

from tests.stage import Stage

SCRIPT = [
    [("look", {"text": "x"}), ("whole", {"number": -1}), ("note", {"text": "a"})],
    [("whole", {"number": 1})],
    [("gated_send", {"text": "b"}), ("note", {"text": "c"})],
]


def test_nothing_is_stored_as_pickle(stage: Stage) -> None:
    some_runs(stage)
    assert stage.rows("select count(*) as n from dbos.operation_outputs")[0]["n"] > 5
    assert pickles(stage) == []
    for table in serialized(stage):
        with pytest.raises(psycopg.errors.CheckViolation, match="surefoot_no_pickle"):
            write_a_pickle(stage, table)


def test_control_without_the_constraint_a_pickle_is_written_and_found(stage: Stage) -> None:
    some_runs(stage)
    for table in serialized(stage):
        stage.rows(f"alter table {table} drop constraint surefoot_no_pickle")
        write_a_pickle(stage, table)
    assert sorted(set(pickles(stage))) == sorted(serialized(stage))


def some_runs(stage: Stage) -> None:
    """One run, killed in the middle, and one that fails."""
    first = stage.working("tool.transaction.after_commit:2")
    run_id = stage.script(*SCRIPT)
    failing = stage.script([("no_such_tool", {})], [("no_such_tool", {})], [("no_such_tool", {})])
    stage.until_state(failing, "failed")
    stage.until_state(run_id, "waiting")
    stage.approve(run_id)
    assert first.until_it_dies() == -9
    stage.working()
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)


def serialized(stage: Stage) -> list[str]:
    """The engine's tables whose rows say how they are to be read."""
    rows = stage.rows(
        "select c.table_name from information_schema.columns c join information_schema.tables t "
        "using (table_schema, table_name) where c.table_schema = 'dbos' and c.column_name = 'serialization' "
        "and t.table_type = 'BASE TABLE' order by 1"
    )
    return [f"dbos.{row['table_name']}" for row in rows]


def pickles(stage: Stage) -> list[str]:
    """The engine's tables with a row that says it is a pickle, or holds one whatever it says."""
    found = []
    columns = stage.rows(
        "select table_name, column_name from information_schema.columns "
        "where table_schema = 'dbos' and data_type in ('text', 'character varying')"
    )
    for table, column in ((row["table_name"], row["column_name"]) for row in columns):
        for row in stage.rows(f'select distinct left("{column}", 64) as value from dbos."{table}"'):
            if row["value"] == "py_pickle" or is_pickle(row["value"]):
                found.append(f"dbos.{table}")
    return found


def is_pickle(text: str | None) -> bool:
    """Whether it begins as a pickle does, in base64: protocol 2 to 5."""
    try:
        start = base64.b64decode((text or "")[:4], validate=True)
    except ValueError:
        return False
    return len(start) == 3 and start[0] == 0x80 and 2 <= start[1] <= 5


def write_a_pickle(stage: Stage, table: str) -> None:
    """Any row of the table that says py_pickle; the columns that have to be there are made up."""
    needed = stage.rows(
        "select column_name as name, data_type as type from information_schema.columns where table_schema || '.' || "
        "table_name = %s and is_nullable = 'NO' and column_default is null and is_identity = 'NO'",
        table,
    )
    made_up = {
        row["name"]: 7
        if row["type"] in ("integer", "bigint", "smallint")
        else base64.b64encode(pickle.dumps("x")).decode()
        for row in needed
    }
    known = stage.rows("select workflow_uuid from dbos.workflow_status limit 1")[0]["workflow_uuid"]
    for name in ("workflow_uuid", "destination_uuid"):
        if name in made_up and table != "dbos.workflow_status":
            made_up[name] = known
    values = {**made_up, "serialization": "py_pickle"}
    names = ", ".join(f'"{name}"' for name in values)
    stage.rows(f"insert into {table} ({names}) values ({', '.join(['%s'] * len(values))})", *values.values())
