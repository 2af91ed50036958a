"""What happens inside one process of the engine, for `test_dbos.py`: each function is run in a process of its own.

DBOS keeps its state in the process, so no case is ever run in the process of the tests.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from dbos import DBOS, DBOSConfig
from dbos._dbos import _get_dbos_instance

from app import engine
from steps.serializer import TypedJson
from tests.forked import until_async

IDLE_TRANSACTION_S = 4.0


class Gone(BaseException):
    """What a fence raises: no result of any step."""


Body = Callable[[], Awaitable[object]]


async def step(name: str, body: Body) -> Any:
    """A step as the journal opens one."""
    return await DBOS.run_step_async({"name": name}, body)


def connecting(url: str) -> Callable[[], psycopg.Connection]:
    """How DBOS is told to open its connections."""
    return lambda: psycopg.connect(url, connect_timeout=5, application_name="contract")


async def launch(
    url: str,
    executor: str,
    version: str,
    segment: Callable[[str, int], Awaitable[None]],
    *,
    claims: bool = True,
) -> None:
    """With the configuration that the product gives; a process that claims nothing serves no queue."""
    config: DBOSConfig = {
        "name": "surefoot",
        "system_database_url": url,
        "executor_id": executor,
        "application_version": version,
        "serializer": TypedJson(),
        "run_migrations": False,
        "sys_db_pool_size": 10,
        "db_engine_kwargs": {"creator": connecting(url)},
        "sys_db_idle_transaction_timeout_sec": IDLE_TRANSACTION_S,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.workflow(name=engine.WORKFLOW, max_recovery_attempts=None)(segment)
    if not claims:
        DBOS.listen_queues([])
    DBOS.launch()
    await DBOS.set_latest_application_version_async(version)
    await DBOS.register_queue_async(engine.QUEUE, polling_interval_sec=0.05, worker_concurrency=10)


async def ignored(run_id: str, n: int) -> None:
    """A segment that does nothing."""


def status(url: str, workflow_id: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "select status from dbos.workflow_status where workflow_uuid = %s", [workflow_id]
        ).fetchone()
        assert row is not None
        return row[0]


def killed_in_a_step(url: str, executor: str, version: str) -> None:
    """Two steps of one name are recorded, and the process kills itself inside the third."""

    async def segment(run_id: str, n: int) -> None:
        for number in (1, 2):
            await step("same", returns(number))
        await step("last", _die)

    async def main() -> None:
        await launch(url, executor, version, segment)
        await asyncio.sleep(10)

    asyncio.run(main())


def returns(value: object) -> Body:
    async def body() -> object:
        return value

    return body


async def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def recovered(url: str, executor: str, version: str, dead: str) -> list[str]:
    """The workflows that a process of this version hands over, which itself executes nothing."""

    async def main() -> list[str]:
        await launch(url, executor, version, ignored, claims=False)
        return list(await engine.recover(dead))

    return asyncio.run(main())


def taken_over(url: str, executor: str, version: str, dead: str, workflow_id: str) -> dict[str, Any]:
    """Recovers the dead executor's workflow again and again while this process executes it to its end."""
    seen: dict[str, Any] = {"ran": [], "values": [], "recovered": []}

    async def segment(run_id: str, n: int) -> None:
        for number in ("one", "two"):

            async def other(number: str = number) -> object:
                seen["ran"].append(number)
                return number

            seen["values"].append(await step("same", other))

        async def last() -> object:
            seen["ran"].append("last")
            seen["recovered"].append(await engine.recover(dead))
            return "new"

        seen["values"].append(await step("last", last))

    async def main() -> None:
        await launch(url, executor, version, segment)
        seen["recovered"].append(await engine.recover(dead))
        await until_async(lambda: status(url, workflow_id) == "SUCCESS")
        seen["recovered"].append(await engine.recover(dead))

    asyncio.run(main())
    return seen


def renamed(url: str, executor: str, version: str, dead: str, workflow_id: str) -> list[str]:
    """Takes over with a segment whose second step has another name. The bodies that ran."""
    ran: list[str] = []

    async def segment(run_id: str, n: int) -> None:
        for name in ("same", "other", "last"):

            async def body(name: str = name) -> object:
                ran.append(name)
                return None

            await step(name, body)

    async def main() -> None:
        await launch(url, executor, version, segment)
        await engine.recover(dead)
        await until_async(lambda: status(url, workflow_id) not in ("PENDING", "ENQUEUED"))

    asyncio.run(main())
    return ran


def raised(url: str, workflow_id: str, what: str) -> None:
    """A recorded step, then one that raises an Exception or a BaseException; until nothing of it runs any more."""
    error: BaseException = Gone("fenced") if what == "BaseException" else RuntimeError("away")
    ended = asyncio.Event()

    async def segment(run_id: str, n: int) -> None:
        async def fails() -> object:
            raise error

        try:
            await step("good", returns(1))
            await step("bad", fails)
        finally:
            ended.set()

    async def main() -> None:
        await launch(url, "a", "v1", segment)
        await asyncio.wait_for(ended.wait(), 20)
        with contextlib.suppress(TimeoutError):
            await until_async(lambda: status(url, workflow_id) != "PENDING", patience_s=0.7)

    asyncio.run(main())


def claimed_by_the_latest_version_only(url: str, workflow_id: str) -> tuple[str, str]:
    """A workflow that names no version: its status under an old version, and after this version became the latest."""

    async def main() -> tuple[str, str]:
        await launch(url, "a", "v1", ignored)
        await DBOS.set_latest_application_version_async("v2")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "select dbos.enqueue_workflow(workflow_name => 'surefoot.segment', queue_name => 'surefoot', "
                "positional_args => array[to_json('r'::text), to_json(0)], workflow_id => %s)",
                [workflow_id],
            )
        await asyncio.sleep(0.6)
        before = status(url, workflow_id)
        await DBOS.set_latest_application_version_async("v1")
        await until_async(lambda: status(url, workflow_id) == "SUCCESS")
        return before, status(url, workflow_id)

    return asyncio.run(main())


def registered(url: str, version: str) -> None:
    """A process of this version has been launched once."""

    async def main() -> None:
        await launch(url, "once", version, ignored, claims=False)

    asyncio.run(main())


def cancelled(url: str, workflow_id: str) -> str:
    """The status of a workflow after `engine.cancel`, which no queue of this process serves."""

    async def main() -> str:
        await launch(url, "a", "v1", ignored, claims=False)
        await engine.cancel([workflow_id])
        return status(url, workflow_id)

    return asyncio.run(main())


def stops_claiming(url: str, first: str, second: str) -> dict[str, Any]:
    """One workflow is under way when claiming stops, another is enqueued after that; the first one ends in the end."""
    seen: dict[str, Any] = {}
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def segment(run_id: str, n: int) -> None:
        begun.set()
        await may_end.wait()

    async def main() -> None:
        await launch(url, "a", "v1", segment)
        await asyncio.wait_for(begun.wait(), 20)
        engine.stop_claiming()
        await until_async(lambda: not engine.is_claiming())
        _enqueue(url, second)
        seen["idle while it goes on"] = await engine.until_idle(0.5)
        may_end.set()
        seen["idle after it"] = await engine.until_idle(20)
        seen["statuses"] = [status(url, first), status(url, second)]

    asyncio.run(main())
    return seen


def slots_of_the_dead(url: str, dead: str, left: str, waiting: str) -> dict[str, Any]:
    """A queue with one slot for all, which a dead executor has; before and after what it left is handed over."""
    seen: dict[str, Any] = {"ran": []}

    async def segment(run_id: str, n: int) -> None:
        seen["ran"].append(f"{run_id}:{n}")

    async def main() -> None:
        await launch(url, "b", "v1", segment)
        await DBOS.register_queue_async(
            engine.QUEUE, polling_interval_sec=0.05, worker_concurrency=1, global_concurrency=1
        )
        await asyncio.sleep(1.5)  # until the thread of the queue has read that, and beyond
        _enqueue(url, waiting)
        await asyncio.sleep(0.5)
        seen["before"] = [status(url, left), status(url, waiting)]
        await engine.recover(dead)
        await until_async(lambda: [status(url, left), status(url, waiting)] == ["SUCCESS", "SUCCESS"])

    asyncio.run(main())
    return seen


def _enqueue(url: str, workflow_id: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select surefoot.enqueue_segment(%s, %s)", workflow_id.split(":"))


def its_connections(url: str) -> dict[str, str]:
    """What a connection says that the launched engine opened for itself."""

    async def main() -> dict[str, str]:
        await launch(url, "a", "v1", ignored, claims=False)
        with _get_dbos_instance()._sys_db.engine.connect() as connection:
            names = ("application_name", "idle_in_transaction_session_timeout")
            return {name: str(connection.exec_driver_sql(f"show {name}").scalar()) for name in names}

    return asyncio.run(main())
