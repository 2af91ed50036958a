"""What people and a worker do together that each can do only half of: versions, the queue, schedules, retention."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from app import Surefoot
from app.loading import load_agents
from app.retention import Retention
from tests.distribution.test_logins import refused
from tests.estate import Estate
from transactions import Database, Forbidden, WorkerId, admitting, versions, workers
from transactions.access import NO_RIGHT
from transactions.retention import Keep
from transactions.versions import Serves

NOTHING = {"turns": []}


@asynccontextmanager
async def both(estate: Estate) -> AsyncIterator[tuple[Surefoot, Database]]:
    """The API under its login, and a worker's door under the other, which has said what it serves."""
    people = Surefoot(estate.url("people"), load_agents("tests.agents.scripted:AGENTS"))
    hands = Database(estate.url("hands"))
    try:
        async with hands.all_tenants("worker.register") as session:
            for version in ("one", "two"):
                serves = Serves("scripted", "1", 1, frozenset({1}), frozenset(), {}, {})
                await versions.announce(session, version, [serves])
        yield people, hands
    finally:
        await people.close()
        await hands.close()
        estate.rows("postgres", "update surefoot.dispatch set room = null, rooms = '{}', reached = '{}'")


async def live(hands: Database) -> WorkerId:
    worker_id = WorkerId(f"w-{uuid4()}")
    async with hands.all_tenants("worker.register") as session:
        await workers.register(
            session,
            worker_id=worker_id,
            version="one",
            host="h",
            machine="m",
            pid=1,
            pid_start="0",
            lease_s=600,
            slots=500,
            agents=["scripted"],
        )
        await workers.ready(session, worker_id)
    return worker_id


async def gone(hands: Database, worker_id: WorkerId) -> None:
    async with hands.all_tenants("worker.release") as session:
        await workers.release(session, worker_id, why="a test")


async def test_people_say_what_holds_and_have_runs_held_and_moved(each: Estate) -> None:
    async with both(each) as (people, _):
        await people.set_limit(agent="scripted", running_max=0)
        await people.set_limit(agent="scripted", running_max=1)
        assert [limit["running_max"] for limit in await people.limits(everywhere=True)] == [1]
        assert len(await people.limits()) == 1
        await people.set_retention("runs", 86400, agent="scripted")
        assert len((await people.retention()).policies) == 1
        await people.set_schedule("daily", "scripted", NOTHING, cron="0 9 * * *")
        await people.set_schedule("daily", "scripted", NOTHING, cron="0 10 * * *")
        await people.pause_schedule("daily")
        await people.resume_schedule("daily")
        assert len(await people.schedules()) == 1
        await people.remove_schedule("daily")
        assert await people.use_version("one") == "one"
        assert "one" in {row["version"] for row in await people.versions() if row["is_current"]}
        run_id = await people.start("scripted", NOTHING, priority=3, delay_s=3600)
        assert (await people.status(run_id))["state"] == "queued"
        assert await people.hold(run_id, reason="look") == "held"
        assert await people.move(run_id, to="two") is None, "it has no worker"
        await people.release(run_id)
        await people.cancel(run_id, reason="enough")
        assert (await people.status(run_id))["state"] == "cancelled"
        assert [row for row in await people.queue() if row["agent"] == "scripted"] == []
        await people.unset_limit(agent="scripted")
        await people.set_retention("runs", None, agent="scripted")
        assert (await people.retention()).policies == []


async def admitted_for(people: Surefoot, hands: Database, estate: Estate) -> list[Any]:
    """A run of people's that waits for its turn, and which version the engine has it for once a worker admits it."""
    await people.use_version("one")
    await people.set_limit(agent="scripted", running_max=1)
    worker_id = await live(hands)
    try:
        run_id = await people.start("scripted", NOTHING)
        assert estate.rows("postgres", "select state from surefoot.segments where run_id = %s", run_id) == [
            ("waiting",)
        ]
        async with hands.all_tenants("queue.look") as session:
            assert (await admitting.look(session, fresh_s=0)).admitted == [run_id]
        found = estate.rows(
            "postgres", "select application_version from dbos.workflow_status where workflow_uuid = %s", f"{run_id}:0"
        )
        estate.rows("postgres", "delete from dbos.workflow_status where workflow_uuid = %s", f"{run_id}:0")
        await people.cancel(run_id, reason="enough")
        return found
    finally:
        await gone(hands, worker_id)
        await people.unset_limit(agent="scripted")


async def test_what_a_worker_admits_is_for_the_version_that_carries_it_on(each: Estate) -> None:
    async with both(each) as (people, hands):
        assert await admitted_for(people, hands, each) == [("one",)]


def test_neither_login_says_which_version_that_is(each: Estate) -> None:
    for name in ("people", "hands"):
        with psycopg.connect(each.url(name), autocommit=True) as login:
            assert refused(login, "select surefoot.ask_engine('r', 0, 'one')")
            assert not refused(login, "select surefoot.hand_to_engine('r', 0)")


async def test_workers_remove_what_is_over_and_people_are_told_that_they_may_not(each: Estate) -> None:
    async with both(each) as (people, hands):
        worker_id = await live(hands)
        await gone(hands, worker_id)
        old = "update surefoot.workers set ended_at = now() - interval '8 days' where worker_id = %s"
        each.rows("postgres", old, worker_id)
        for dry_run in (True, False):
            with pytest.raises(Forbidden) as told:
                await people.run_retention(kinds=["workers"], dry_run=dry_run)
            assert str(told.value) == NO_RIGHT
        assert (await people.retention()).removed == []
        each.rows("postgres", "delete from surefoot.retention_passes")
        removed = await Retention(hands, Keep(), lambda: None, rest=0).run_once()
        assert {one.kind: one.items for one in removed}["workers"] >= 1
        assert each.rows("postgres", "select count(*) from surefoot.workers where worker_id = %s", worker_id) == [(0,)]
        owner = Surefoot(each.url("dba"), [])
        try:
            await owner.run_retention(kinds=["workers"])
        finally:
            await owner.close()
        each.rows("postgres", "delete from surefoot.removals")


async def test_what_waits_is_stranded_only_where_no_dispatcher_would_take_it(new: Estate) -> None:
    stranded = "select why from surefoot.stranded where run_id = %s"
    async with both(new) as (people, hands):
        await people.set_limit(agent="scripted", running_max=0)
        waits = await people.start("scripted", NOTHING)
        delayed = await people.start("scripted", NOTHING, delay_s=3600)
        worker_id = await live(hands)
        assert new.rows("postgres", stranded, waits) == new.rows("postgres", stranded, delayed) == []
        new.rows("postgres", "update surefoot.segments set queued_at = now() where run_id = %s", delayed)
        assert new.rows("postgres", stranded, delayed) == [("it is delayed, and was due",)]
        async with hands.all_tenants("queue.look") as session:
            await admitting.look(session, fresh_s=0)
        assert new.rows("postgres", stranded, delayed) == []
        await gone(hands, worker_id)
        for one in (waits, delayed):
            await people.cancel(one, reason="enough")
            assert new.rows("postgres", stranded, one) == []
        await people.unset_limit(agent="scripted")
