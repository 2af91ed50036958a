"""Every connection is bounded below the lease: idling in a transaction, and waiting on a line that is silent."""

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

import transactions.database
from app import Surefoot
from tests.forked import call, until_async
from transactions import DEFAULT_TENANT, Database, Fenced, Limits, WorkerId, versions, workers
from transactions.connecting import application_name, parameters
from transactions.database import connector, until_committed
from transactions.lease import Lease
from transactions.wakeups import Wakeups

LEASES_S = (1.0, 3.0, 10.0, 45.0, 600.0)
NAME = "surefoot test"
LONG_ID = WorkerId("a-host-with-a-name-of-forty-characters--4194304-0123456789ab")


def given(url: str, lease_s: float) -> Mapping[str, Mapping[str, Any]]:
    """What each part of a worker hands to the driver."""
    limits = Limits().within(lease_s)
    seen: dict[str, Mapping[str, Any]] = {"wakeups": Wakeups(url, limits, application=NAME)._parameters}

    def noted(name: str) -> Callable[..., Any]:
        def connect(_: str, **parameters: Any) -> Any:
            seen[name] = parameters
            raise psycopg.OperationalError("noted")

        return connect

    for name, connect in {
        "engine": connector(url, limits, application=NAME),
        "lease": Lease(url, LONG_ID, lease_s)._connect,
    }.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg, "connect", noted(name))
            with pytest.raises(psycopg.OperationalError):
                connect()
    return seen


def session_settings(parameters: Mapping[str, Any]) -> dict[str, str]:
    return dict(re.findall(r"-c (\S+)=(\S+)", parameters["options"]))


@pytest.mark.parametrize("lease_s", LEASES_S)
def test_whatever_a_worker_opens_ends_by_itself_within_its_lease(database_url: str, lease_s: float) -> None:
    found = given(database_url, lease_s)
    assert set(found) == {"wakeups", "engine", "lease"}
    found["pool"] = parameters(Limits().within(lease_s), application=NAME, role="surefoot_app")
    for name, one in found.items():
        at_server = session_settings(one)
        assert 0 < int(at_server["idle_in_transaction_session_timeout"]) < lease_s * 1000, name
        for end in (one, at_server):
            assert 0 < int(end["tcp_user_timeout"]) <= lease_s * 1000 / 3, name
        probes = {key: int(at_server[f"tcp_{key}"]) for key in one if key.startswith("keepalives_")}
        assert probes == {key: one[key] for key in probes}
        seconds = probes["keepalives_idle"] + probes["keepalives_interval"] * probes["keepalives_count"]
        assert seconds <= max(3, lease_s / 3), "three seconds are the least that there can be"


async def test_the_server_takes_them(database_url: str) -> None:
    database = Database(database_url, Limits().within(3), application=NAME)
    try:
        async with database.all_tenants("read") as session:
            for name, value in {"idle_in_transaction_session_timeout": "2400ms", "application_name": NAME}.items():
                assert (await session.execute(text(f"show {name}"))).scalar_one() == value
    finally:
        await database.close()


async def test_a_workers_sessions_are_found_by_its_name_and_ended_when_it_is_dead(
    database: Database, database_url: str
) -> None:
    register = (
        "insert into surefoot.workers (worker_id, version, host, machine, pid, pid_start, lease_s, lease_until) "
        "values (%s, 'v1', 'h', 'm', 1, '1', 1, now() + interval '1 hour')"
    )
    living = WorkerId(LONG_ID.replace("0123456789ab", "ba9876543210"))
    sessions = {}
    with psycopg.connect(database_url, autocommit=True) as admin:
        for worker_id in (LONG_ID, living):
            assert len(application_name(worker_id)) <= 63
            admin.execute(register.encode(), [worker_id])
            sessions[worker_id] = psycopg.connect(
                database_url, **parameters(Limits(), application=application_name(worker_id), role="surefoot_app")
            )
            sessions[worker_id].execute("select 1")  # in a transaction from here on
        async with database.all_tenants("read") as session:
            assert await workers.sessions_of_dead(session) == []
        admin.execute("update surefoot.workers set state = 'dead', ended_at = now() where worker_id = %s", [LONG_ID])
        async with database.all_tenants("read") as session:
            found = await workers.sessions_of_dead(session)
        assert [row["application_name"] for row in found] == [application_name(LONG_ID)]
        async with database.as_login("watchdog.cut") as session:
            await workers.end_sessions(session, found)
        with pytest.raises(psycopg.errors.AdminShutdown):
            sessions[LONG_ID].execute("select 1")
        sessions[living].execute("select 1")
    for one in sessions.values():
        one.close()


async def test_a_watchdog_that_hangs_has_its_lock_taken_from_it(database: Database) -> None:
    """Whether it hangs between two statements or in one."""
    for hangs, error in (("select 1", "idle-in-transaction"), ("select pg_sleep(30)", "statement timeout")):
        with pytest.raises(Exception, match=error):  # noqa: PT012  what is tested happens meanwhile
            async with database.all_tenants("watchdog.bury") as session:
                assert await workers.watchdog_lock(session, hold_s=0.3)
                await session.execute(text(hangs))
                while True:
                    async with database.all_tenants("watchdog.fence") as other:
                        if await workers.watchdog_lock(other, hold_s=60):
                            break
                await session.execute(text("select 1"))


OURS = (
    "select application_name from pg_stat_activity"
    " where datname = current_database() and application_name like 'surefoot%'"
)


async def nothing_is_open(url: str) -> None:
    """Of a worker that was in this process."""
    with psycopg.connect(url, autocommit=True) as admin:
        await until_async(lambda: admin.execute(OURS).fetchall() == [])
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("lease")]


def fails_to_start(url: str) -> None:
    async def fails(*_: object) -> bool:
        raise RuntimeError("not today")

    async def starts() -> None:
        async with Surefoot(url, []).lifespan():
            raise AssertionError("it has started")

    async def go() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(versions, "begin", fails)
            with pytest.raises(RuntimeError, match="not today"):
                await starts()
        await nothing_is_open(url)

    asyncio.run(go())


def test_a_worker_that_fails_to_start_leaves_nothing_open(database_url: str) -> None:
    call(fails_to_start, database_url)


def stops_without_its_duties(url: str) -> None:
    def fenced() -> None:
        raise Fenced("the database is elsewhere")

    async def go() -> None:
        surefoot = Surefoot(url, [])
        async with surefoot.lifespan():
            assert surefoot.worker is not None
            surefoot.worker.duties.only_while(fenced)
        await nothing_is_open(url)

    asyncio.run(go())


def test_a_worker_that_cannot_say_that_it_leaves_leaves_all_the_same(database_url: str) -> None:
    call(stops_without_its_duties, database_url)


SHAPE = text("select * from public.shaped")


async def read_while_a_column_is_added(database: Database, url: str) -> None:
    """On a connection that has prepared the statement."""
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("create table public.shaped as select 1 as a; grant select on public.shaped to surefoot_app")

        async def look() -> int:
            async with database.transaction("read", DEFAULT_TENANT) as session:
                return len((await session.execute(SHAPE)).one())

        for _ in range(8):
            assert await look() == 1
        owner.execute("alter table public.shaped add column b int")
        assert await until_committed(look, lambda: None) == 2


async def test_a_column_that_is_added_meanwhile_fails_nothing_that_is_under_way(
    database: Database, database_url: str
) -> None:
    await read_while_a_column_is_added(database, database_url)


async def test_control_the_driver_alone_fails_there_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions.database, "try_elsewhere", lambda _: None)
    database = Database(database_url)
    with pytest.raises(Exception, match="cached plan must not change result type"):
        await read_while_a_column_is_added(database, database_url)
    await database.close()
