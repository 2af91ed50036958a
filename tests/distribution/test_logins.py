"""What the login of the API and that of a worker may do: all of it tried, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.bad_input.sentences import sentence
from tests.distribution.matrix import findings
from tests.estate import Estate
from tests.forked import surefoot
from transactions.access import API, WORKER, of_login

AGENT = "insert into surefoot.agents (name, version, input_schema) values ('a', '1', '{}') on conflict do nothing"
RUN = "select surefoot.start_run('a', '{}')"
# What a worker's claims, executions and results are made of, as the login of the API would do it.
CLAIMS = {
    "a segment, from the engine": "update dbos.workflow_status set status = 'PENDING', executor_id = 'people'",
    "an execution": "update surefoot.runs set generation = generation + 1",
    "an effect": "update surefoot.actions set state = 'IN_FLIGHT' where state = 'PREPARED'",
    "a delivery": "update surefoot.outbox_deliveries set state = 'claimed', lease_until = now()"
    " where state = 'pending'",
    "a delivery, as somebody": "update surefoot.outbox_deliveries set worker_id = 'people' where state = 'pending'",
    "a lease": "insert into surefoot.workers (worker_id, version, host, machine, pid, pid_start, lease_s, lease_until)"
    " values ('people', '1', 'h', 'm', 1, '0', 60, now())",
    "a turn": "insert into surefoot.model_messages (run_id, seq, tenant, segment, message)"
    " select run_id, 0, tenant, 0, '{}' from surefoot.runs",
    "a result": "update surefoot.runs set output = '1'",
    "a workflow of its own": "select dbos.enqueue_workflow('surefoot.segment', 'surefoot')",
    "a workflow, as a row": "insert into dbos.workflow_status (workflow_uuid) values ('x')",
    "a worker's role": "set role surefoot_worker",
    "the role of tools": "set role surefoot_app",
}
DDL = (
    "create table surefoot.t (a int)",
    "create table dbos.t (a int)",
    "create table public.t (a int)",
    "create table scripted.t (a int)",
    "create schema s",
    "create function public.f() returns int language sql as 'select 1'",
    "create or replace function surefoot.epoch() returns int language sql as 'select 1'",
    "create extension pg_trgm",
    "create role r",
    "create view surefoot.v as select 1",
    "create trigger t before insert on surefoot.runs for each row execute function surefoot.keep_time()",
    "create policy p on surefoot.runs using (true)",
    "create index i on surefoot.runs (state)",
    "alter table surefoot.runs add column c int",
    "alter table surefoot.runs disable row level security",
    "alter table surefoot.runs disable trigger all",
    "alter table dbos.workflow_status drop constraint surefoot_no_pickle",
    "alter policy tenant on surefoot.runs using (true)",
    "alter role hands bypassrls",
    "drop table surefoot.steps",
    "drop schema surefoot cascade",
    "truncate surefoot.runs cascade",
    "truncate dbos.workflow_status",
    "grant surefoot_admin to hands",
    "set role dba",
    "set role postgres",
    "set session_replication_role = replica",
    "copy surefoot.runs to program 'cat'",
)


def refused(connection: psycopg.Connection, statement: str) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("select set_config('surefoot.tenant', 'default', true)")
            connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.errors.DuplicateObject:
        return False
    return False


@contextmanager
def tampered(estate: Estate, change: str, undo: str) -> Iterator[None]:
    estate.rows("dba", change)
    try:
        yield
    finally:
        estate.rows("dba", undo)


def test_each_login_may_do_to_each_table_what_the_matrix_says(each: Estate) -> None:
    assert list(findings(each)) == []


@pytest.mark.parametrize(
    "tampering",
    [
        "grant delete on surefoot.principals to surefoot_worker",
        "grant delete on surefoot.runs to surefoot_api",
        "grant update (generation) on surefoot.runs to surefoot_api",
        "grant truncate on dbos.workflow_status to surefoot_worker",
        "grant update on surefoot.api_tokens to surefoot_worker",
    ],
)
def test_control_a_right_too_many_is_seen(new: Estate, tampering: str) -> None:
    with tampered(new, tampering, tampering.replace("grant ", "revoke ").replace(" to ", " from ")):
        assert len(list(findings(new))) == 1


def test_control_a_table_that_nobody_has_thought_of_is_seen(new: Estate) -> None:
    with tampered(new, "create table surefoot.new (a int)", "drop table surefoot.new"):
        [finding] = findings(new)
    assert finding.startswith("surefoot.new is not in tests/distribution/matrix.py")


def test_the_api_cannot_claim_anything_and_a_worker_can(each: Estate) -> None:
    each.rows("postgres", AGENT)
    each.rows("postgres", "update surefoot.dispatch set room = 9")  # as where a dispatcher has looked
    with psycopg.connect(each.url("people"), autocommit=True) as people:
        people.execute("set surefoot.tenant = 'default'")
        people.execute(RUN.encode())  # and so there is a run, with a workflow in the queue of the engine
        assert people.execute("select count(*) from dbos.workflow_status").fetchone() != (0,)
        put_something_to_claim(each)
        assert [name for name, statement in CLAIMS.items() if not refused(people, statement)] == []
    with psycopg.connect(each.url("hands"), autocommit=True) as hands:
        mine = [name for name, statement in CLAIMS.items() if not refused(hands, statement)]
    assert set(CLAIMS) - set(mine) == set()


def test_the_api_is_told_that_the_queue_of_all_tenants_is_full_and_sees_no_other_tenants_row(new: Estate) -> None:
    new.rows("postgres", AGENT)
    new.rows("postgres", "insert into surefoot.tenants (tenant) values ('b') on conflict do nothing")
    limit = (
        "insert into surefoot.limits (tenant, everyone, running_max, queued_max, changed_by)"
        " values ('default', true, 0, 1, 'dba')"
    )
    with tampered(new, limit, "delete from surefoot.limits"), psycopg.connect(new.url("people")) as people:
        people.execute(RUN.encode())
        people.execute("set local surefoot.tenant = 'b'")
        with pytest.raises(psycopg.DatabaseError, match="as many runs of all tenants wait to begin") as full:
            people.execute("select surefoot.start_run('a', '{}', tenant => 'b')")
        assert full.value.sqlstate == "SF005"
        people.rollback()


def test_control_without_the_fence_the_api_claims_an_effect(new: Estate) -> None:
    new.rows("postgres", AGENT)
    new.rows("postgres", RUN)
    put_something_to_claim(new)
    undo = (
        "create policy api_claims_nothing on surefoot.{} as restrictive for update to surefoot_api"
        " using (true) with check (state <> '{}')"
    )
    for table, state, claim in (("actions", "IN_FLIGHT", "an effect"), ("outbox_deliveries", "claimed", "a delivery")):
        without = tampered(new, f"drop policy api_claims_nothing on surefoot.{table}", undo.format(table, state))
        with without, psycopg.connect(new.url("people"), autocommit=True) as people:
            assert not refused(people, CLAIMS[claim])


def put_something_to_claim(estate: Estate) -> None:
    """An effect of the run that is there, prepared but for its call, and its delivery."""
    estate.rows(
        "postgres",
        "insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind,"
        " safety, request, request_hash, gated, attempts_max, attempt_s, attempt)"
        " select run_id || '/1/0:t', tenant, run_id, 0, 1, 0, 'c', 'a', 't', 'effect', 'verify', '1', 'h', false,"
        " 5, 1, 1"
        " from surefoot.runs on conflict do nothing",
    )
    estate.rows(
        "postgres",
        "insert into surefoot.outbox_entries (entry_id, tenant, topic, payload) values ('e', 'default', 't', '1')"
        " on conflict do nothing",
    )
    estate.rows(
        "postgres",
        "insert into surefoot.outbox_deliveries (entry_id, consumer, tenant, state, attempts_max)"
        " values ('e', 'c', 'default', 'pending', 5) on conflict do nothing",
    )


def test_neither_login_can_change_the_schema_and_its_owner_can(each: Estate) -> None:
    for name in ("people", "hands"):
        with psycopg.connect(each.url(name), autocommit=True) as login:
            assert [statement for statement in DDL if not refused(login, statement)] == [], name
    with psycopg.connect(each.url("dba"), autocommit=True) as owner:
        for statement in (
            "create table surefoot.t (a int)",
            "create schema s",
            "create role r",
            "drop schema surefoot cascade",
        ):
            assert not refused(owner, statement), "and so it is the login that was refused"


def test_another_tenant_is_another_world_for_both(new: Estate) -> None:
    new.rows("postgres", AGENT)
    new.rows("postgres", RUN)
    for login, role in (("people", "surefoot_api"), ("hands", "surefoot_app")):
        with psycopg.connect(new.url(login)) as connection:
            connection.execute(f"set role {role}".encode())
            for tenant in ("acme", ""):
                connection.execute("select set_config('surefoot.tenant', %s, true)", (tenant,))
                assert connection.execute("select count(*) from surefoot.runs").fetchone() == (0,)
                assert connection.execute("select count(*) from surefoot.run_status").fetchone() == (0,)
            connection.execute("select set_config('surefoot.tenant', 'default', true)")
            assert connection.execute("select count(*) from surefoot.runs").fetchone() != (0,)


async def test_what_a_login_is_for_is_known(each: Estate) -> None:
    assert await of_login(each.url("people")) == [API]
    assert await of_login(each.url("hands")) == [WORKER]
    assert await of_login(each.url("dba")) == [API, WORKER]


# What is said.


def test_each_command_says_which_login_it_needs(new: Estate) -> None:
    people, hands = {"DATABASE_URL": new.url("people")}, {"DATABASE_URL": new.url("hands")}
    assert sentence(surefoot("worker", env=people)) == (
        "The login people may not run agents: run `surefoot migrate --worker-login people` once as the owner of the "
        "schema, or serve the API alone with `surefoot serve --no-worker`."
    )
    assert sentence(surefoot("serve", "--port", "0", env=people)).startswith("The login people may not run agents")
    assert sentence(surefoot("serve", "--no-worker", "--port", "0", env=hands)) == (
        "The login hands may not serve the API: run `surefoot migrate --api-login hands` once as the owner of the "
        "schema."
    )
    assert sentence(surefoot("runs", "list", env=hands)).startswith("This login of the database may not serve the API")
    for words in ("artifacts sweep", "db restored"):
        assert "may not run agents" in sentence(surefoot(*words.split(), env=people))
    assert sentence(surefoot("migrate", env=hands)).startswith("This login may not migrate")
    assert "login: it may be a worker" in surefoot("doctor", env=hands).stdout
    assert "login: it may serve the API" in surefoot("doctor", env=people).stdout


def test_a_login_that_could_do_more_is_not_let_in(new: Estate) -> None:
    env = {"DATABASE_URL": new.url("dba")}
    new.rows("postgres", "create role boss login superuser")
    new.rows("postgres", "create role idle nologin")
    new.rows("postgres", "create role stiff login noinherit")
    new.rows("postgres", "create role remover login")
    new.rows("postgres", "grant surefoot_retention to remover")
    try:
        for words, said in (
            ("--api-login nobody_there", "There is no login 'nobody_there': make it first"),
            ("--api-login idle", "There is no login 'idle'"),
            ("--worker-login boss", "The login 'boss' is a superuser, owns schema surefoot, or may make roles"),
            ("--worker-login dba", "The login 'dba' is a superuser, owns schema surefoot, or may make roles"),
            ("--api-login remover", "The login 'remover' has surefoot_retention already"),
            ("--worker-login people", "The login 'people' has surefoot_admin, surefoot_api already"),
            ("--api-login hands", "The login 'hands' has surefoot_app, surefoot_retention, surefoot_worker already"),
            (
                "--api-login stiff",
                "The login 'stiff' does not inherit what its roles may: say `alter role stiff inherit`",
            ),
        ):
            assert sentence(surefoot("migrate", *words.split(), env=env)).startswith(said)
        again = surefoot("migrate", "--api-login", "people", "--worker-login", "hands", env=env)
        assert again.stdout.splitlines()[1:] == [
            "people may serve the API, and nothing else",
            "hands may be a worker, and nothing else",
        ]
    finally:
        for name in ("boss", "idle", "stiff", "remover"):
            new.rows("postgres", f"drop role {name}")
    assert list(findings(new)) == []


def test_a_dump_that_was_restored_where_the_roles_are_not_is_told(new: Estate) -> None:
    env = {"DATABASE_URL": new.url("dba")}
    for what, undo in (
        ("alter role surefoot_retention rename to others", "alter role others rename to surefoot_retention"),
        ("revoke select on surefoot.runs from surefoot_app", "grant select on surefoot.runs to surefoot_app"),
    ):
        new.rows("postgres", what)
        try:
            assert f"and not what {what.split()[2] if 'role' in what else 'surefoot_app'} may" in sentence(
                surefoot("migrate", env=env)
            )
        finally:
            new.rows("postgres", undo)
    assert surefoot("migrate", env=env).returncode == 0
