"""Many runs in the state of one, and what a worker costs that has nothing to do with them."""

import time
from dataclasses import dataclass, replace

import psutil
import psycopg

from tests.kit import Process
from tests.stage import Stage

WINDOW_S = 4.0
WINDOWS = 3
# A query more or less of a loop's own pace is no query about a run.
SLACK = 1.05
COPIED = {
    "surefoot.runs": "run_id = %(old)s",
    "surefoot.run_states": "run_id = %(old)s",
    "surefoot.segments": "run_id = %(old)s",
    "surefoot.model_messages": "run_id = %(old)s",
    "surefoot.events": "run_id = %(old)s",
    "surefoot.actions": "run_id = %(old)s",
    "surefoot.attempts": "starts_with(action_id, %(old)s)",
    "surefoot.approvals": "run_id = %(old)s",
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
    """What a worker that has nothing to do does in a while, and what it holds."""

    transactions: int
    rows_read: int
    cpu_s: float
    memory: int
    connections: int


def copy(stage: Stage, run_id: str, times: int) -> None:
    """So many more runs in the state of this one, each row as the run's own but for its id."""
    asked = {"old": run_id, "times": times}
    numbers = "generate_series(1, %(times)s) as g, lateral (select %(old)s::text || 'x' || g as id) as n"
    options = "-c session_replication_role=replica"  # the triggers would keep their own rows
    with psycopg.connect(stage.database_url, autocommit=True, options=options) as connection:
        for table, which in COPIED.items():
            found = connection.execute(COLUMNS, {**asked, "table": table}).fetchone()
            assert found is not None
            names, copies = (str(part).replace("%", "%%") for part in found)
            insert = f"insert into {table} ({names}) select {copies} from {table}, {numbers} where {which}"
            connection.execute(insert.encode(), asked)
        connection.execute("vacuum analyze")


def at_rest(stage: Stage, worker: Process) -> Cost:
    """What others are held to: of several windows the most.

    A worker that is kept from its core looks less often than it would, and never more often; and a pool keeps what it
    has opened.
    """
    found = [cost(stage, worker) for _ in range(WINDOWS)]
    most = max(found, key=lambda one: one.transactions)
    return replace(most, connections=max(one.connections for one in found))


def no_more(stage: Stage, worker: Process, idle: Cost) -> Cost:
    """What it costs now; looked at again, as often as what it is held to, while that is more.

    One window of a machine that has become free is fuller than those of a busy one before it, and only for that.
    """
    for _ in range(WINDOWS - 1):
        found = cost(stage, worker)
        if found.transactions <= SLACK * idle.transactions + 3:
            return found
    return cost(stage, worker)


def cost(stage: Stage, worker: Process) -> Cost:
    """In one window, once what happened before it has been counted."""
    process = psutil.Process(worker.pid)
    time.sleep(1.5)
    before, cpu = counted(stage), process.cpu_times()
    time.sleep(WINDOW_S)
    after, then = counted(stage), process.cpu_times()
    transactions, rows_read = (after[name] - before[name] for name in ("transactions", "rows_read"))
    cpu_s = round(then.user + then.system - cpu.user - cpu.system, 3)
    connections = min(counted(stage)["connections"] for _ in range(20))  # but for those of a moment
    return Cost(transactions, rows_read, cpu_s, process.memory_info().rss, connections)


def counted(stage: Stage) -> dict[str, int]:
    transactions = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    read = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables"
    open_ = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    return stage.rows(
        f"select ({transactions})::bigint as transactions, ({read})::bigint as rows_read, ({open_}) as connections"
    )[0]
