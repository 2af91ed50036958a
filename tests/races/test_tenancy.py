"""One tenant's rows are another's nothing: for every table and view that the catalogue knows, and shown to fail."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.races.scenes import ADA, Scene, open_scene
from transactions import (
    DEFAULT_TENANT,
    EntryId,
    Event,
    RunState,
    StepRow,
    Tenant,
    artifacts,
    attempts,
    desk,
    keys,
    messages,
    number_fenced,
    outbox,
    receipts,
    record_steps,
)
from transactions.desk import Statement
from transactions.segments import Ending

B = Tenant("b")
ROLES = ("surefoot_app", "surefoot_worker")
APPEND_ONLY = ("receipts", "events", "inbox", "artifacts", "verifications", "decisions")
# The application's role has no right to update them at all.
NEVER_UPDATED = ("staged_objects", "artifact_sweeps")
# To take its row is the right to reference an object: it is deleted by the commit that does.
TAKEN = "staged_objects"
QUAL = "(tenant = current_setting('surefoot.tenant'::text, true))"

Connection = psycopg.Connection[Any]


async def populate(scene: Scene, tenant: Tenant) -> None:
    """At least one row in every table and every view, by the product's own functions."""
    if tenant != DEFAULT_TENANT:
        await scene.rows("insert into surefoot.agents select %s, name, version, input_schema from surefoot.agents", B)
        await scene.rows(
            "insert into surefoot.workers select (jsonb_populate_record(null::surefoot.workers, to_jsonb(w)"
            " || jsonb_build_object('tenant', %s::text, 'worker_id', 'another'))).* from surefoot.workers w limit 1",
            B,
        )
    await scene.rows(
        "insert into surefoot.subscriptions (tenant, topic, consumer, passes_dead) values (%s, 't', 'c', false)", tenant
    )
    await scene.rows(
        "insert into surefoot.staged_objects (object, tenant, store) values (%s || '/1', %s, 'file:///a')",
        tenant,
        tenant,
    )
    await scene.rows("insert into surefoot.artifact_sweeps (tenant, store) values (%s, 'file:///a')", tenant)
    await scene.rows("insert into surefoot.consumer_limits (tenant, consumer) values (%s, 'c')", tenant)
    execution = await scene.running(tenant)
    async with scene.database.transaction("calls", tenant) as session:
        sent = await scene.call(session, execution, 0, "verification")
        await attempts.judge(session, sent.action_id, attempt=1, verdict="unsure", evidence="?", worker_id=ADA)
        asked = await scene.call(session, execution, 1, "approval")
        decided = await scene.call(session, execution, 2, "verification")
        await desk.settle(session, decided.action_id, Statement("failed", "eve", reason="looked"))
        await receipts.receive(session, decided.action_id, attempt=1, source="answer", result=1, worker_id=ADA)
        await keys.prepare(session, execution, scene.request(execution, 3, gated=False), key=lambda: "key")
        step = StepRow(0, "step", "ran", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
        await record_steps(session, execution, [step])
        await messages.append(session, execution, first_seq=0, messages=[{"kind": "request"}])
        await messages.record_call(session, execution, turn=1, model="m", input_tokens=1, output_tokens=1)
        await receipts.complete_transaction(session, execution, asked.action_id, result="done")
        await artifacts.save(
            session,
            tenant=tenant,
            run_id=execution.run_id,
            action_id=asked.action_id,
            name="report",
            content=b"bytes",
            media_type="text/plain",
        )
        for n in range(2):
            await outbox.put(
                session,
                entry_id=EntryId(f"{tenant} {n}"),
                tenant=tenant,
                run_id=execution.run_id,
                action_id=asked.action_id,
                topic="mail",
                payload={},
                consumers=("mail",),
                key="key",
            )
        await number_fenced(session, execution, Event("done"))
        await session.flush()
    async with scene.database.all_tenants("relay.claim") as session:
        for delivery in await outbox.claim_due(
            session, consumers=["mail"], agents=(), worker_id=ADA, lease_s=60, limit=1
        ):
            await outbox.take_into_inbox(session, delivery)
    await scene.end(execution, Ending(state=RunState.WAITING, turns=1, usage={}, waits=[sent, asked]))


@pytest.fixture(scope="module")
def populated(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """A database with rows of two tenants. Whoever looks at it rolls back."""

    async def fill(url: str) -> None:
        async with open_scene(url) as scene:
            await populate(scene, DEFAULT_TENANT)
            await populate(scene, B)

    with clone("tenants") as url:
        asyncio.run(fill(url))
        yield url


@pytest.fixture
def owner(populated: str) -> Iterator[Connection]:
    """The owner's connection, in a transaction that is rolled back."""
    with psycopg.connect(populated) as connection:
        yield connection
        connection.rollback()


def test_every_table_and_view_has_rows_of_both_tenants(owner: Connection) -> None:
    """Without rows there is nothing to hide, and the next tests would show nothing."""
    for name in [*_tables(owner), *_views(owner)]:
        for tenant in (DEFAULT_TENANT, B):
            with _as(owner, "surefoot_app", tenant):
                assert _count(owner, name, tenant) > 0, f"{name} has no row of {tenant}"


def test_no_row_crosses_the_border_of_its_tenant(owner: Connection) -> None:
    assert violations(owner) == []


@pytest.mark.parametrize(
    "tampering",
    [
        "drop policy tenant on surefoot.runs",
        "drop policy worker on surefoot.waits",
        "alter policy tenant on surefoot.steps with check (true)",
        "alter policy tenant on surefoot.approvals using (true)",
        "create policy more on surefoot.actions using (true)",
        "alter table surefoot.events no force row level security",
        "alter table surefoot.inbox disable row level security",
        "alter view surefoot.run_status set (security_invoker = false)",
        "create table surefoot.new (tenant text)",
        "create table surefoot.new (nobodys text)",
        "grant delete on surefoot.runs to surefoot_app",
        "grant truncate on surefoot.runs to surefoot_worker",
        "grant update on surefoot.receipts to surefoot_app",
        "grant update on surefoot.decisions to surefoot_app",
        "grant update (data) on surefoot.events to surefoot_app",
        "grant create on schema surefoot to surefoot_app",
        "alter table surefoot.outbox_keys owner to surefoot_app",
        "alter function surefoot.enqueue_segment(text, integer) owner to surefoot_worker",
        "alter role surefoot_app bypassrls",
        "grant surefoot_worker to surefoot_app",
    ],
)
def test_each_hole_in_the_fence_is_seen(owner: Connection, tampering: str) -> None:
    owner.execute(tampering.encode())
    assert violations(owner) != []


@pytest.mark.parametrize(
    "tampering",
    [
        "alter policy tenant on surefoot.approvals using (true)",
        "alter policy tenant on surefoot.steps with check (true)",
        "create policy more on surefoot.actions using (true)",
        "alter table surefoot.inbox disable row level security",
        "alter view surefoot.run_status set (security_invoker = false)",
        "alter role surefoot_app bypassrls",
    ],
)
def test_each_hole_can_be_walked_through(owner: Connection, tampering: str) -> None:
    """What the catalogue says is one thing; a row that crosses is another."""
    owner.execute(tampering.encode())
    assert list(_crossings(owner)) != []


# What is wrong, in words; nothing when all is well.


def violations(owner: Connection) -> list[str]:
    return [*_catalogue(owner), *_privileges(owner)] or list(_crossings(owner))


def _catalogue(owner: Connection) -> Iterator[str]:
    for name, has_tenant, secured, forced in _rows(
        owner,
        "select relname, exists (select 1 from pg_attribute a where attrelid = c.oid and attname = 'tenant'),"
        " relrowsecurity, relforcerowsecurity from pg_class c"
        " where relnamespace = 'surefoot'::regnamespace and relkind in ('r', 'p')",
    ):
        if not has_tenant:
            if name != "schema_version":
                yield f"{name} has no tenant"
            continue
        if not (secured and forced):
            yield f"{name}: row-level security is {'on' if secured else 'off'}, {'forced' if forced else 'not forced'}"
        policies = _rows(
            owner,
            "select policyname, permissive, roles, cmd, qual, with_check from pg_policies"
            " where schemaname = 'surefoot' and tablename = %s order by policyname",
            name,
        )
        if policies != [
            ("tenant", "PERMISSIVE", ["public"], "ALL", QUAL, None),
            ("worker", "PERMISSIVE", ["surefoot_worker"], "ALL", "true", None),
        ]:
            yield f"{name}: policies {policies}"
    for name, options in _rows(
        owner,
        "select relname, reloptions from pg_class"
        " where relnamespace = 'surefoot'::regnamespace and relkind in ('v', 'm')",
    ):
        if "security_invoker=true" not in (options or []):
            yield f"view {name} shows its owner's rows"


def _privileges(owner: Connection) -> Iterator[str]:
    for role, power in _rows(
        owner,
        "select rolname, rolsuper or rolbypassrls or rolcanlogin or rolcreaterole or rolcreatedb"
        " from pg_roles where rolname = any(%s)",
        list(ROLES),
    ):
        if power:
            yield f"{role} may more than a role that owns nothing"
    for member, of in _rows(
        owner,
        "select m.rolname, g.rolname from pg_auth_members a join pg_roles m on m.oid = a.member"
        " join pg_roles g on g.oid = a.roleid where m.rolname = any(%s)",
        list(ROLES),
    ):
        yield f"{member} is a member of {of}"
    for kind, name, role in _rows(
        owner,
        "select kind, name, rolname from (select 'relation', relname, relowner from pg_class"
        " union all select 'function', proname, proowner from pg_proc"
        " union all select 'schema', nspname, nspowner from pg_namespace) o (kind, name, owner)"
        " join pg_roles r on r.oid = o.owner where rolname = any(%s)",
        list(ROLES),
    ):
        yield f"{role} owns {kind} {name}"
    for role in ROLES:
        for schema in ("surefoot", "dbos"):
            if _rows(owner, "select has_schema_privilege(%s, %s, 'create')", role, schema)[0][0]:
                yield f"{role} may create in {schema}"
            for name, deletes, truncates in _rows(
                owner,
                "select c.relname, has_table_privilege(%s, c.oid, 'delete'), has_table_privilege(%s, c.oid, 'truncate')"
                " from pg_class c where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p')",
                role,
                role,
                schema,
            ):
                if truncates or (deletes and name != TAKEN):
                    yield f"{role} may delete from {schema}.{name}"
        for privilege in ("insert", "update"):
            if _rows(owner, "select has_table_privilege(%s, 'surefoot.schema_version', %s)", role, privilege)[0][0]:
                yield f"{role} may {privilege} the schema's version"
        for name in APPEND_ONLY:
            if _rows(owner, "select has_any_column_privilege(%s, %s, 'update')", role, f"surefoot.{name}")[0][0]:
                yield f"{role} may update {name}, which is append-only"


def _crossings(owner: Connection) -> Iterator[str]:
    """Try it, as the application's role bound to the default tenant, on every table and view."""
    for name in [*_tables(owner), *_views(owner)]:
        with _as(owner, "surefoot_app", DEFAULT_TENANT):
            if _count(owner, name, B):
                yield f"{name}: rows of another tenant are visible"
        with _as(owner, "surefoot_app", Tenant("")):
            if _rows(owner, "select count(*) from {}", table=name)[0][0]:
                yield f"{name}: rows are visible without a tenant"
    for name in _tables(owner):
        copies = _rows(owner, "select to_jsonb(t)::text from {} t where tenant = %s limit 1", B, table=name)
        for [copy] in copies:
            insert = "insert into {t} overriding system value select * from jsonb_populate_record(null::{t}, %s::jsonb)"
            if not _refused(owner, insert, copy, table=name):
                yield f"{name}: a row of another tenant was written"
        if name in (*APPEND_ONLY, *NEVER_UPDATED):
            if not _refused(owner, "update {} set tenant = tenant", table=name):
                yield f"{name}: the application may update it"
            continue
        with _as(owner, "surefoot_app", DEFAULT_TENANT):
            cursor = owner.execute(_composed("update {} set tenant = tenant", name))
            mine = _rows(owner, "select count(*) from {} where tenant = %s", DEFAULT_TENANT, table=name)[0][0]
            if cursor.rowcount > mine:
                yield f"{name}: rows of another tenant were changed"
        if not _refused(owner, "update {} set tenant = %s where tenant = %s", B, DEFAULT_TENANT, table=name):
            yield f"{name}: a row was given to another tenant"


class _as:  # noqa: N801  reads as a preposition
    """Act as a role bound to a tenant, and undo what was done."""

    def __init__(self, owner: Connection, role: str, tenant: Tenant) -> None:
        self._owner, self._role, self._tenant = owner, role, tenant

    def __enter__(self) -> None:
        self._owner.execute("savepoint acting")
        self._owner.execute("select set_config('role', %s, true)", (self._role,))
        self._owner.execute("select set_config('surefoot.tenant', %s, true)", (self._tenant,))

    def __exit__(self, *_: object) -> None:
        self._owner.execute("rollback to savepoint acting")


def _refused(owner: Connection, query: str, *parameters: object, table: str) -> bool:
    with _as(owner, "surefoot_app", DEFAULT_TENANT):
        try:
            owner.execute(_composed(query, table), parameters)
        except psycopg.errors.InsufficientPrivilege:
            return True
        except psycopg.errors.IntegrityError:
            return False  # only a constraint stood in the way
        return False


def _composed(query: str, table: str) -> sql.Composed:
    name = sql.Identifier("surefoot", table)
    return sql.SQL(query).format(name, t=name)  # pyright: ignore[reportArgumentType]


def _rows(owner: Connection, query: str, *parameters: Any, table: str | None = None) -> list[Any]:
    return owner.execute(_composed(query, table) if table else query.encode(), parameters).fetchall()


def _count(owner: Connection, name: str, tenant: Tenant) -> int:
    return _rows(owner, "select count(*) from {} where tenant = %s", tenant, table=name)[0][0]


def _tables(owner: Connection) -> list[str]:
    return [
        name
        for (name,) in _rows(
            owner,
            "select relname from pg_class c where relnamespace = 'surefoot'::regnamespace and relkind in ('r', 'p')"
            " and exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant') order by 1",
        )
    ]


def _views(owner: Connection) -> list[str]:
    return [
        name
        for (name,) in _rows(
            owner,
            "select relname from pg_class"
            " where relnamespace = 'surefoot'::regnamespace and relkind in ('v', 'm') order by 1",
        )
    ]
