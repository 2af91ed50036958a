"""Effects that only a person can say something of wait through restarts for as long as nobody does, and nobody asks."""

import time
from dataclasses import dataclass

import psutil
import psycopg

from tests.kit import Process, until
from tests.stage import Stage

MANY = 10_000
WINDOW_S = 6.0
# A query more or less of a loop's own pace is no query about an effect.
SLACK = 1.05
COPIED = {
    "surefoot.runs": "run_id = %(old)s",
    "surefoot.segments": "run_id = %(old)s",
    "surefoot.model_messages": "run_id = %(old)s",
    "surefoot.events": "run_id = %(old)s",
    "surefoot.actions": "run_id = %(old)s",
    "surefoot.attempts": "starts_with(action_id, %(old)s)",
    "surefoot.waits": "run_id = %(old)s",
    "surefoot.outbox_entries": "run_id = %(old)s",
    "surefoot.outbox_deliveries": "starts_with(entry_id, %(old)s)",
    "dbos.workflow_status": "starts_with(workflow_uuid, %(old)s)",
}
COLUMNS = """
select string_agg(quote_ident(attname), ', ' order by attnum) as names,
       string_agg(case atttypid::regtype::text
                  when 'text' then format('replace(%%I, %%L, n.id)', attname, %(old)s::text)
                  when 'jsonb' then format('replace(%%I::text, %%L, n.id)::jsonb', attname, %(old)s::text)
                  else quote_ident(attname) end, ', ' order by attnum) as copies
  from pg_attribute where attrelid = %(table)s::regclass and attnum > 0 and not attisdropped"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a worker that has nothing to do does in a while."""

    transactions: int
    rows_read: int
    cpu_s: float


def test_ten_thousand_unknown_effects_wait_for_people_and_cost_nothing(stage: Stage) -> None:
    first = stage.working("effect.after_send")
    run_id = stage.script([("send_blindly", {"text": "a"})])
    assert first.until_it_dies() == -9
    worker = stage.working()
    stage.until_state(run_id, "waiting")
    until("it is on the desk", lambda: on_desk(stage) == 1)
    idle = cost(stage, worker)
    copy(stage, run_id, MANY - 1)
    before = facts(stage)
    assert on_desk(stage) == MANY
    with_many = cost(stage, worker)
    worker.kill()
    again = stage.working()
    after_a_restart = cost(stage, again)
    print(f"idle {idle}, with {MANY} {with_many}, after a restart {after_a_restart}")
    assert facts(stage) == before
    assert len(stage.outside.sent) == 1
    for found in (with_many, after_a_restart):
        assert found.transactions <= SLACK * idle.transactions + 3
        assert found.rows_read <= SLACK * idle.rows_read + MANY / 2  # nothing reads through them, not once
    action_id = f"{run_id}x{MANY // 2}/1/0:send_blindly"
    settled = stage.command("actions", "settle", action_id, "succeeded", "--result", "1")
    assert settled.returncode == 0
    stage.until_state(action_id.partition("/")[0], "completed")
    assert on_desk(stage) == MANY - 1


def test_control_what_is_asked_again_and_again_costs_more(stage: Stage) -> None:
    first = stage.working("effect.after_send")
    run_id = stage.script([("send_blindly", {"text": "a"})])
    assert first.until_it_dies() == -9
    worker = stage.working()
    until("it is on the desk", lambda: on_desk(stage) == 1)
    copy(stage, run_id, MANY // 10)
    idle = cost(stage, worker)
    stage.rows("update surefoot.outbox_deliveries set state = 'pending' where state = 'parked'")
    busy = cost(stage, worker)
    assert busy.transactions > SLACK * idle.transactions + 3


def on_desk(stage: Stage) -> int:
    unknown = "select count(*) as n from surefoot.unknown_actions where waits_for = 'person' and state = 'UNKNOWN'"
    return int(stage.rows(unknown)[0]["n"])


def facts(stage: Stage) -> list[dict[str, object]]:
    """All that would change if anybody did anything to one of them."""
    return stage.rows(
        "select (select sum(event_seq) from surefoot.runs) as events, (select sum(generation) from surefoot.runs) as "
        "generations, (select count(*) from surefoot.attempts) as attempts, (select sum(attempt) from "
        "surefoot.outbox_deliveries) as claims, (select count(*) from surefoot.verifications) as verdicts"
    )


def copy(stage: Stage, run_id: str, times: int) -> None:
    """So many more runs in the state of this one."""
    asked = {"old": run_id, "times": times}
    numbers = "generate_series(1, %(times)s) as g, lateral (select %(old)s::text || 'x' || g as id) as n"
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        for table, which in COPIED.items():
            found = connection.execute(COLUMNS, {**asked, "table": table}).fetchone()
            assert found is not None
            names, copies = (str(part).replace("%", "%%") for part in found)
            insert = f"insert into {table} ({names}) select {copies} from {table}, {numbers} where {which}"
            connection.execute(insert.encode(), asked)
        connection.execute("vacuum analyze")


def cost(stage: Stage, worker: Process) -> Cost:
    """In one window, once what happened before it has been counted."""
    process = psutil.Process(worker.pid)
    time.sleep(1.5)
    before, cpu = counted(stage), process.cpu_times()
    time.sleep(WINDOW_S)
    after, then = counted(stage), process.cpu_times()
    transactions, rows_read = (after[name] - before[name] for name in ("transactions", "rows_read"))
    return Cost(transactions, rows_read, round(then.user + then.system - cpu.user - cpu.system, 3))


def counted(stage: Stage) -> dict[str, int]:
    transactions = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    read = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables"
    return stage.rows(f"select ({transactions})::bigint as transactions, ({read})::bigint as rows_read")[0]
