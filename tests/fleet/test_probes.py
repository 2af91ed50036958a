"""What probes are told: the truth about the worker, the database and the schema, also while everything else is busy."""

import signal

import httpx
import psycopg
import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import until
from tests.stage import Stage
from transactions import API, DEFAULT_TENANT, Database, DatabaseUnavailable, Limits

DRAINING = (503, {"status": "draining"})
READY = (200, {"status": "ready"})


def told(client: httpx.Client, path: str = "/readyz") -> tuple[int, dict[str, str]]:
    answer = client.get(path)
    return answer.status_code, answer.json()


def health(stage: Stage, **env: str) -> tuple[object, httpx.Client]:
    """A worker alone, and a client of its health port."""
    process = stage.worker(command=("worker", "--health-host", "127.0.0.1", "--health-port", "0"), **env)
    url = process.until_it_says("works as").rpartition(" ")[2]
    return process, httpx.Client(base_url=url, trust_env=False, timeout=10)


def test_a_worker_alone_answers_probes_and_says_that_it_drains(stage: Stage) -> None:
    process, client = health(stage, TEST_HANGS="1", SUREFOOT_DRAIN_S="600")
    with client:
        assert (told(client), told(client, "/healthz")) == (READY, (200, {"status": "ok"}))
        assert client.get("/runs").status_code == 404
        stage.script([("hang", {"how": "waits"})])
        process.until_it_says("hangs and waits")
        process.signal(signal.SIGTERM)
        until("it says that it drains", lambda: told(client) == DRAINING)
        assert told(client, "/healthz") == (200, {"status": "ok"})
        process.signal(signal.SIGINT)
    assert process.until_it_dies() == 128 + signal.SIGINT


def test_a_port_that_is_taken_is_told_and_nothing_is_started(stage: Stage) -> None:
    process, client = health(stage)
    client.close()
    port = str(client.base_url.port)
    second = stage.command("worker", "--health-host", "127.0.0.1", "--health-port", port)
    assert second.returncode == 1
    assert "--health-port" in second.stderr
    assert len(stage.rows("select 1 from surefoot.workers")) == 1
    process.kill()


def test_while_the_server_drains_it_answers_and_ends_what_is_in_flight(stage: Stage) -> None:
    process, api = stage.serve(TEST_HANGS="1", SUREFOOT_DRAIN_S="3")
    stage.script([("hang", {"how": "waits"})])
    process.until_it_says("hangs and waits")
    body = {"agent": "scripted", "input": {"turns": []}}
    process.signal(signal.SIGTERM)
    until("it says that it drains", lambda: told(api) == DRAINING)
    run_id = api.post("/runs", json=body).json()["run_id"]
    assert process.until_it_dies() == 0
    assert stage.rows("select 1 from dbos.workflow_status where status = 'PENDING'") == []
    stage.working()
    stage.until_state(run_id, "completed")


def test_it_is_not_ready_while_the_lease_is_not_renewed(stage: Stage) -> None:
    process, client = health(stage, SUREFOOT_LEASE_S="12")
    with client, psycopg.connect(stage.database_url) as holder:
        holder.execute("select * from surefoot.workers for update")
        until("it says so", lambda: told(client) == (503, {"status": "lease not renewed"}))
        holder.rollback()
        until("it is ready again", lambda: told(client) == READY)
    assert process.exit_code() is None


async def test_an_older_schema_is_not_ready_and_a_later_one_is(database_url: str) -> None:
    surefoot = Surefoot(database_url, AGENTS)
    try:
        assert await surefoot.ready() == "ready"
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute("update surefoot.schema_version set version_num = '0001'")
            assert await surefoot.ready() == "schema is old"
            admin.execute("update surefoot.schema_version set version_num = '9999'")
            assert await surefoot.ready() == "ready"
            admin.execute("delete from surefoot.schema_version")
            assert await surefoot.ready() == "schema is old"
            admin.execute("drop table surefoot.schema_version")
            assert await surefoot.ready() == "schema is old"
    finally:
        await surefoot.close()


async def test_when_all_connections_are_taken_who_waits_is_told_soon_and_probes_do_not_wait(database_url: str) -> None:
    surefoot = Surefoot(database_url, AGENTS)
    await surefoot.database.close()
    surefoot.database = Database(database_url, Limits(pool_connections=1, pool_wait_s=0.2), API)
    try:
        async with surefoot.database.transaction("read", DEFAULT_TENANT):
            assert await surefoot.ready() == "ready"  # nobody has waited in vain
            with pytest.raises(DatabaseUnavailable, match="try again"):
                await surefoot.runs()
            assert await surefoot.ready() == "busy"
        assert await surefoot.ready() == "ready"
        assert await surefoot.runs() == []
    finally:
        await surefoot.close()


async def test_a_server_that_takes_no_writes_is_not_ready(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f'alter database "{admin.info.dbname}" set default_transaction_read_only = on'.encode())
    surefoot = Surefoot(database_url, AGENTS)
    try:
        assert await surefoot.ready() == "read-only"
    finally:
        await surefoot.close()
