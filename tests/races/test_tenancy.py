"""One tenant's rows are another's nothing: for every table and view that the catalogue knows, and shown to fail."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text

from tests.races.fences import SECRET, Acting, B, Connection, count, crossings, tables, views, violations
from tests.races.scenes import ADA, AGENT, Scene, open_scene
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
    limits,
    messages,
    number_fenced,
    outbox,
    principals,
    receipts,
    record_steps,
    schedules,
    tokens,
)
from transactions.desk import Statement
from transactions.limits import Limit
from transactions.schedules import Schedule
from transactions.segments import Ending

_SAID = text(
    "insert into surefoot.approval_decisions "
    "(approval_id, n, tenant, decision, decided_by, in_right_of, authenticated) "
    "select approval_id, 1, tenant, 'approve', 'eve', 'role:manager', true from surefoot.approvals "
    "where approval_id = :approval_id"
)


async def populate(scene: Scene, tenant: Tenant) -> None:
    """At least one row in every table and every view, by the product's own functions."""
    if tenant != DEFAULT_TENANT:
        await scene.rows("insert into surefoot.agents select %s, name, version, input_schema from surefoot.agents", B)
        await scene.rows(
            "insert into surefoot.workers select (jsonb_populate_record(null::surefoot.workers, to_jsonb(w)"
            " || jsonb_build_object('tenant', %s::text, 'worker_id', 'another'))).* from surefoot.workers w limit 1",
            B,
        )
        version = (
            "insert into surefoot.versions (version, tenant, current_since, current_by) values ('b=1', %s, now(), 'b')"
        )
        await scene.rows(version, B)
        await scene.rows(
            "insert into surefoot.version_agents select (jsonb_populate_record(null::surefoot.version_agents,"
            " to_jsonb(a) || jsonb_build_object('tenant', %s::text, 'version', 'b=1', 'agent', 'b'))).*"
            " from surefoot.version_agents a",
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
    if tenant != DEFAULT_TENANT:
        await scene.rows(
            "insert into surefoot.epochs (epoch, tenant, stood_at, why, begun_by) values (99, %s, now(), 'w', 'b')",
            tenant,
        )
    await scene.rows("insert into surefoot.consumer_limits (tenant, consumer) values (%s, 'c')", tenant)
    await scene.rows(
        "update surefoot.agents set limits = limits || '{\"waiting_s_max\": 0}'"
    )  # a run that waits is stuck
    execution = await scene.running(tenant)
    await scene.rows(
        "insert into surefoot.state_migrations (run_id, segment, tenant, from_state, to_state, version, messages)"
        " values (%s, 0, %s, 1, 2, 'report=1', '[]')",
        execution.run_id,
        tenant,
    )
    await scene.rows("insert into surefoot.retention_policies values (%s, 'runs', '', 1, now(), 'eve')", tenant)
    await scene.rows("insert into surefoot.retention_passes (tenant, kind) values (%s, 'runs')", tenant)
    await scene.rows("insert into surefoot.removals values (%s, now(), 'runs', 'eve', 1, 1)", tenant)
    await scene.rows("insert into surefoot.artifact_numbers values (%s, 'report', 1)", tenant)
    async with scene.people.all_tenants("token.create") as session:
        await principals.put(session, tenant, "eve", roles=["admin"], by="test")
        await tokens.create(session, tenant, "eve", scopes=None, expires=timedelta(days=1), by="test")
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
    async with scene.database.transaction("said", tenant) as session:
        await session.execute(_SAID, {"approval_id": asked.action_id})
    await scene.end(execution, Ending(state=RunState.WAITING, turns=1, usage={}, waits=[sent, asked]))
    lost = await scene.running(tenant)
    await scene.rows("delete from dbos.workflow_status where workflow_uuid = %s", f"{lost.run_id}:0")  # stranded
    await scene.rows("insert into surefoot.dispatch (tenant) values (%s) on conflict do nothing", tenant)
    await scene.rows("insert into surefoot.queue_turns values (%s, now())", tenant)
    async with scene.database.all_tenants("limit.set") as session:
        await limits.put(session, Limit(tenant, running_max=99), by="eve")
    async with scene.database.transaction("schedule.set", tenant) as session:
        await schedules.put(session, tenant, Schedule("daily", AGENT, {}, "0 9 * * *"), by="eve")
    await scene.start(tenant)


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
    for name in [*tables(owner), *views(owner)]:
        for tenant in (DEFAULT_TENANT, B):
            with Acting(owner, "surefoot_admin" if name in SECRET else "surefoot_app", tenant):
                assert count(owner, name, tenant) > 0, f"{name} has no row of {tenant}"


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
        "drop policy deployment on surefoot.agents",
        "alter policy deployment on surefoot.agents using (true)",
        "create policy deployment on surefoot.runs for select using (tenant = 'default')",
        "grant select on surefoot.api_tokens to surefoot_app",
        "grant select (token_id) on surefoot.api_tokens to surefoot_app",
        "grant insert on surefoot.principals to surefoot_app",
        "grant update (tokens_since) on surefoot.tenants to surefoot_app",
        "create table surefoot.new (nobodys text)",
        "grant delete on surefoot.runs to surefoot_app",
        "grant truncate on surefoot.runs to surefoot_worker",
        "grant update on surefoot.receipts to surefoot_app",
        "grant update on surefoot.decisions to surefoot_app",
        "grant update (data) on surefoot.events to surefoot_app",
        "drop policy deployment on surefoot.limits",
        "alter policy tenant on surefoot.schedules using (true)",
        "grant create on schema surefoot to surefoot_app",
        "alter table surefoot.outbox_keys owner to surefoot_app",
        "alter function surefoot.enqueue_segment(text, integer) owner to surefoot_worker",
        "alter role surefoot_app bypassrls",
        "grant surefoot_worker to surefoot_app",
        "grant surefoot_retention to surefoot_worker",
        "grant delete on surefoot.principals to surefoot_retention",
        "grant insert on surefoot.runs to surefoot_retention",
        "grant truncate on surefoot.runs to surefoot_retention",
        "alter policy retention on surefoot.runs to public",
        "alter role surefoot_retention bypassrls",
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
        "alter policy deployment on surefoot.agents using (true)",
        "create policy deployment on surefoot.runs for select using (tenant = 'default')",
        "create policy more on surefoot.agents for update using (tenant = 'default')",
        "alter table surefoot.inbox disable row level security",
        "alter view surefoot.run_status set (security_invoker = false)",
        "alter role surefoot_app bypassrls",
    ],
)
def test_each_hole_can_be_walked_through(owner: Connection, tampering: str) -> None:
    """What the catalogue says is one thing; a row that crosses is another."""
    owner.execute(tampering.encode())
    assert list(crossings(owner)) != []
