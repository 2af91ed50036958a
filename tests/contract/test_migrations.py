"""A database of an earlier version is brought up to date with what is in it."""

import asyncio

import psycopg
import pytest
from alembic import command
from sqlalchemy import make_url

from app import Surefoot, engine, wiring
from tests.forked import until_async
from transactions import Database, WorkerId, clones, migrate, outbox, statements
from transactions.database import sync_engine
from transactions.local import LocalPostgres

# A run that waits for an effect whose outcome is unknown, one whose verdict has been contradicted, as 0001 had them.
ROWS = """
insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash, state, event_seq)
values ('r', 'default', 'shop', 'nobody', '{}', 'h', 'waiting', 0);
insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind, safety,
                              request, request_hash, gated, state, attempt, attempts_max, attempt_s,
                              attempt_deadline_at, result, settled_at)
select 'r/1/' || position || ':pay', 'default', 'r', 0, 1, position, 'c', 'shop', 'pay', 'effect', 'at_most_once',
       '{}', 'h', false, state, 1, 5, 1, now(), result, settled_at
  from (values (0, 'UNKNOWN', null, null), (1, 'SUCCEEDED', jsonb '1', now())) v (position, state, result, settled_at);
insert into surefoot.attempts (action_id, attempt, tenant, generation, worker_id, deadline_at)
select action_id, 1, tenant, 1, 'w', now() from surefoot.actions;
insert into surefoot.receipts (action_id, attempt, tenant, source, result, contradiction, generation, worker_id)
values ('r/1/1:pay', 1, 'default', 'answer', '1', null, 1, 'w'),
       ('r/1/1:pay', 1, 'default', 'answer', '2', 'a second answer to attempt 1', 1, 'w');
"""


# What 0003 had of a key: one entry that is delivered, two that wait; and how its writers put one more.
KEYED = """
insert into surefoot.outbox_entries (entry_id, tenant, topic, key, key_seq, payload)
select 'e' || n, 'default', 'news', 'k', n, '{}' from generate_series(1, 3) n;
insert into surefoot.outbox_deliveries (entry_id, consumer, tenant, state, attempts_max, settled_at)
select 'e' || n, 'mail', 'default', case when n = 1 then 'delivered' else 'pending' end, 20,
       case when n = 1 then now() end from generate_series(1, 3) n;
"""
ONE_MORE = """
insert into surefoot.outbox_entries (entry_id, tenant, topic, key, key_seq, payload)
values ('e4', 'default', 'news', 'k', 4, '{}');
insert into surefoot.outbox_deliveries (entry_id, consumer, tenant, state, attempts_max)
values ('e4', 'mail', 'default', 'pending', 20);
"""


async def test_the_order_of_a_key_holds_over_the_migration_and_for_writers_of_before(postgres: LocalPostgres) -> None:
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    async with clones.clone(server, "third_version", template="template0") as url:
        await asyncio.to_thread(_version, url, "0003", KEYED)
        await asyncio.to_thread(wiring.migrate_database, url, [])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(ONE_MORE.encode())
        database = Database(url)
        order: list[str] = []
        try:
            for _ in range(3):
                async with database.all_tenants("relay.claim") as session:
                    [one] = await outbox.claim_due(
                        session, consumers=["mail"], agents=(), worker_id=WorkerId("w"), lease_s=60, limit=9
                    )
                    order.append(one.entry_id)
                    assert await outbox.acknowledge(session, one, receipt=None)
        finally:
            await database.close()
        assert order == ["e2", "e3", "e4"]


async def test_a_database_of_the_first_version_gets_a_desk_with_what_was_unknown(postgres: LocalPostgres) -> None:
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    async with clones.clone(server, "first_version", template="template0") as url:
        await asyncio.to_thread(_version, url, "0001", ROWS)
        assert await asyncio.to_thread(migrate.pending, url)
        await asyncio.to_thread(wiring.migrate_database, url, [])
        assert not await asyncio.to_thread(migrate.pending, url)
        surefoot = Surefoot(url, [])
        try:
            found = await surefoot.desk()
            assert [(row["action_id"], row["can"]) for row in found.unknown] == [
                ("r/1/0:pay", ["succeeded", "absent", "failed"])
            ]
            assert [(row["result"], row["counts"]) for row in found.contradictions] == [(2, 1)]
            await surefoot.settle("r/1/0:pay", "succeeded", result=3)
            assert (await surefoot.desk()).unknown == []
        finally:
            await surefoot.close()


# What 0022 had of runs: two, which a unique index on their tenant stumbles over.
RUNS = """
insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash)
values ('r', 'default', 'shop', 'nobody', '{}', 'h'), ('s', 'default', 'shop', 'nobody', '{}', 'h');
"""


async def test_rights_and_indexes_come_while_the_tables_are_in_use(
    postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a lock lets others by; what an earlier try has left behind of an index is built again."""
    monkeypatch.setattr(statements, "_LOCK_WAIT", "50ms")
    monkeypatch.setattr(statements, "_LOCK_PAUSE_S", 0.05)
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    async with clones.clone(server, "in_use", template="template0") as url:
        await asyncio.to_thread(_version, url, "0022", RUNS)
        with (
            psycopg.connect(url, autocommit=True) as other,
            psycopg.connect(url) as reader,
            psycopg.connect(url) as first_reader,
        ):
            with pytest.raises(psycopg.errors.UniqueViolation):
                other.execute("create unique index concurrently runs_ended on surefoot.runs (tenant)")
            other.execute("set statement_timeout = '10s'")
            reader.execute("select 1 from surefoot.waits")
            first_reader.execute("select 1 from surefoot.runs")
            migrating = asyncio.create_task(asyncio.to_thread(wiring.migrate_database, url, []))
            waits = (
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
                " and query like %s"
            )
            for locked_by, table, change in (
                (first_reader, "runs", "%alter table surefoot.runs%"),
                (reader, "waits", "%policy retention on surefoot.waits%"),
            ):
                await until_async(lambda change=change: other.execute(waits, (change,)).fetchone() == (1,))
                other.execute(f"select 1 from surefoot.{table}".encode())  # and nobody queues up behind it for long
                assert not migrating.done()
                locked_by.rollback()
            await migrating
            found = other.execute(
                "select indisvalid, indisunique from pg_index where indexrelid = 'surefoot.runs_ended'::regclass"
            ).fetchall()
            assert found == [(True, False)]
            assert other.execute("select to_regclass('surefoot.runs_open')").fetchone() == (None,)


def _version(url: str, version: str, rows: str) -> None:
    engine.migrate(url)
    ours = sync_engine(url)
    with ours.begin() as connection:
        connection.exec_driver_sql("create schema surefoot")
        command.upgrade(migrate._config(connection), version)
    ours.dispose()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(rows.encode())
