"""A database of an earlier version is brought up to date with what is in it."""

import asyncio

import psycopg
from alembic import command
from sqlalchemy import make_url

from app import Surefoot, engine, wiring
from transactions import clones, migrate
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


async def test_a_database_of_the_first_version_gets_a_desk_with_what_was_unknown(postgres: LocalPostgres) -> None:
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    async with clones.clone(server, "first_version", template="template0") as url:
        await asyncio.to_thread(_first_version, url)
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
            await surefoot.settle("r/1/0:pay", "succeeded", by="eve", result=3)
            assert (await surefoot.desk()).unknown == []
        finally:
            await surefoot.close()


def _first_version(url: str) -> None:
    engine.migrate(url)
    ours = sync_engine(url)
    with ours.begin() as connection:
        connection.exec_driver_sql("create schema surefoot")
        command.upgrade(migrate._config(connection), "0001")
    ours.dispose()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ROWS.encode())
