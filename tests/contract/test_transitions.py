"""The database itself refuses every change of state that is no transition, and every row that begins in the middle."""

from collections.abc import Iterator

import psycopg
import pytest

from transactions.states import MACHINES, Machine

ROWS = """
insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash)
values ('r', 'default', 'a', 'p', '1', 'h');
insert into surefoot.segments (run_id, n, tenant) values ('r', 0, 'default');
insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind, safety,
                              request, request_hash, gated, attempts_max, attempt_s)
values ('r/1/0:pay', 'default', 'r', 0, 1, 0, 'c', 'a', 'pay', 'effect', 'verify', '1', 'h', true, 5, 1);
insert into surefoot.approvals (approval_id, tenant, run_id, action_id, tool, arguments, binding, binding_hash,
                                approver, expires_at)
values ('r/1/0:pay', 'default', 'r', 'r/1/0:pay', 'pay', '1', '1', 'h', 'role:manager', now());
insert into surefoot.outbox_entries (entry_id, tenant, topic, payload) values ('r/1/0:pay', 'default', 'effect', '1');
insert into surefoot.outbox_deliveries (entry_id, consumer, tenant, state, attempts_max)
values ('r/1/0:pay', 'effect', 'default', 'pending', 5);
"""
# What else the CHECK constraints want of a row in a state, so that only the transition can be what is refused.
BESIDES = {
    "runs": "reason = 'r', output = '1', "
    "ended_at = case when {0} in ('completed', 'failed', 'cancelled') then now() end",
    "segments": "agent = 'a', queued_at = now(), outcome = 'o', turns = 1, "
    "settled_at = case when {0} = 'settled' then now() end",
    "actions": "reason = 'r', attempt = 1, "
    "settled_at = case when {0} in ('SUCCEEDED', 'FAILED', 'CANCELLED') then now() end",
    "approvals": "decided_by = 'ada', authenticated = false, decided_at = case when {0} <> 'pending' then now() end",
    "outbox_deliveries": "lease_until = case when {0} = 'claimed' then now() end, "
    "settled_at = case when {0} in ('delivered', 'dead', 'discarded') then now() end",
}
each_machine = pytest.mark.parametrize("machine", MACHINES, ids=[machine.table for machine in MACHINES])
Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def owner(database_url: str) -> Iterator[Connection]:
    """With one row of each machine. As the owner, whom no policy binds; a trigger does."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(ROWS.encode())
        yield connection


def change(machine: Machine, state: str) -> str:
    return f"update surefoot.{machine.table} set state = '{state}', " + BESIDES[machine.table].format(f"'{state}'")


def put_into(owner: Connection, machine: Machine, state: str) -> None:
    """Past every trigger."""
    owner.execute("set local session_replication_role = replica")
    owner.execute(change(machine, state).encode())
    owner.execute("set local session_replication_role = origin")


def refused(owner: Connection, statement: str) -> str | None:
    """What the database says of the statement, when it is refused as no transition."""
    try:
        with owner.transaction():
            owner.execute(statement.encode())
    except psycopg.Error as error:
        if error.diag.sqlstate != "SF004":
            raise
        return error.diag.message_primary
    return None


@each_machine
def test_a_change_of_state_goes_exactly_when_it_is_a_transition(owner: Connection, machine: Machine) -> None:
    for state in machine.states:
        for to in machine.states:
            with owner.transaction(force_rollback=True):
                put_into(owner, machine, state)
                said = refused(owner, change(machine, to))
            allowed = to in machine.transitions[state] or to is state
            assert (said is None) == allowed, f"{state} -> {to}: {said}"
            assert said is None or all(word in said for word in (machine.table, "r", state, to))


@each_machine
def test_a_row_begins_only_in_a_state_in_which_it_may(owner: Connection, machine: Machine) -> None:
    for state in machine.states:
        with owner.transaction(force_rollback=True):
            put_into(owner, machine, state)
            owner.execute(f"create temp table one as select * from surefoot.{machine.table}".encode())
            owner.execute("set local session_replication_role = replica")
            owner.execute(f"delete from surefoot.{machine.table}".encode())
            owner.execute("set local session_replication_role = origin")
            said = refused(owner, f"insert into surefoot.{machine.table} select * from one")
        assert (said is None) == (state in machine.starts), f"{state}: {said}"


@each_machine
def test_control_without_its_trigger_everything_goes(owner: Connection, machine: Machine) -> None:
    owner.execute(f"drop trigger keep_transitions on surefoot.{machine.table}".encode())
    last = next(state for state in machine.states if not machine.transitions[state])
    first = next(iter(machine.starts))
    with owner.transaction(force_rollback=True):
        put_into(owner, machine, last)
        assert refused(owner, change(machine, first)) is None


def test_a_row_that_keeps_its_state_may_be_changed_in_any_other_way(owner: Connection) -> None:
    with owner.transaction():
        owner.execute("set local session_replication_role = replica")
        owner.execute("update surefoot.runs set state = 'completed', output = '1', ended_at = now()")
    owner.execute("update surefoot.runs set state = 'completed', event_seq = event_seq + 1, updated_at = now()")
