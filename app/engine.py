"""The one adapter around DBOS: configuration, launch, the queue, recovery of another executor's work, shutdown."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dbos import DBOS, DBOSClient, DBOSConfig, _dbos  # pyright: ignore[reportPrivateUsage]

from steps.serializer import TypedJson

QUEUE = "surefoot"
_APPLICATION = "surefoot"
WORKFLOW = "surefoot.segment"
_DESTROY_EXTRA_S = 10
_NOTICE_S = 0.05
_NOTICES_MAX = 40

Segment = Callable[[str, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`executor_id` is unique per process start; `idle_transaction_s` is below the lease; `connect` connects."""

    url: str
    connect: Callable[[], object]
    executor_id: str
    version: str
    queue_poll_s: float
    runs_at_once: int
    idle_transaction_s: float


def migrate(url: str) -> None:
    """Create or upgrade DBOS's own schema."""
    _quiet()
    DBOS.migrate(url, schema="dbos")


def register_queue(url: str, *, poll_s: float) -> None:
    """Have the queue there before any worker is: DBOS serves at once what it finds, and looks for more each second."""
    client = DBOSClient(system_database_url=url, application_name=_APPLICATION, serializer=TypedJson())
    try:
        client.register_queue(QUEUE, polling_interval_sec=poll_s)
    finally:
        client.destroy()


async def launch(settings: EngineSettings, segment: Segment) -> None:
    """Launch DBOS in the running loop and serve the queue. The worker's lease row exists already."""
    _quiet()
    config: DBOSConfig = {
        "name": _APPLICATION,
        "system_database_url": settings.url,
        "executor_id": settings.executor_id,
        "application_version": settings.version,
        "serializer": TypedJson(),
        "run_migrations": False,
        "sys_db_pool_size": 10,
        "db_engine_kwargs": {"creator": settings.connect},
        "sys_db_idle_transaction_timeout_sec": settings.idle_transaction_s,
        "log_level": "ERROR",
    }
    DBOS(config=config)

    async def run_segment(run_id: str, n: int) -> None:
        await segment(run_id, n)

    DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(run_segment)
    DBOS.launch()
    # Every segment is enqueued for a version by name (`surefoot.hand_to_engine`): which one the engine takes for the
    # latest is of no account, and so must not decide whose settings of the queue count either.
    await DBOS.register_queue_async(
        QUEUE,
        polling_interval_sec=settings.queue_poll_s,
        worker_concurrency=settings.runs_at_once,
        on_conflict="always_update",
    )


async def recover(executor_id: str) -> Sequence[str]:
    """Hand over every pending workflow of a dead executor, of this process's version, to the queue. Safe to repeat.

    DBOS's own recovery call is internal there; it is the only one that is conditional on the dead executor and keeps
    the queue and the deadline. `tests/contract/` pins what we rely on.
    """
    recovered = await asyncio.to_thread(DBOS._recover_pending_workflows, [executor_id])  # pyright: ignore[reportPrivateUsage]
    return [handle.get_workflow_id() for handle in recovered]


async def cancel(workflow_ids: Sequence[str]) -> None:
    """Mark workflows of segments that were given up as cancelled."""
    for workflow_id in workflow_ids:
        await DBOS.cancel_workflow_async(workflow_id)


async def destroy(drain_s: float) -> None:
    """Stop claiming, let executions end for `drain_s`, then leave. In a pool of its own: the loop lives on."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="dbos-destroy") as pool:
        leaving = asyncio.get_running_loop().run_in_executor(
            pool, lambda: DBOS.destroy(workflow_completion_timeout_sec=int(drain_s), destroy_registry=True)
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(leaving), drain_s + _DESTROY_EXTRA_S)


async def abandon(cut: Callable[[], None]) -> None:
    """Leave the engine of a worker whose loop stands still for good. `cut` takes the database away from it.

    Its threads are told to end first, and then find no database; without one they would try again for ever. They are
    waited for only so long: one may be handing a workflow to the loop.
    """
    dead = _dbos._dbos_global_instance  # pyright: ignore[reportPrivateUsage]
    if dead is not None and dead._sys_db_field is not None:  # pyright: ignore[reportPrivateUsage]
        dead._sys_db_field._retry_connection_errors = False  # pyright: ignore[reportPrivateUsage]
        dead._background_threads.clear()  # pyright: ignore[reportPrivateUsage]
    claiming = [thread for thread in threading.enumerate() if thread.name.startswith("queue-worker-")]
    leaving = asyncio.create_task(destroy(0))
    await asyncio.sleep(_NOTICE_S)
    for _ in range(_NOTICES_MAX):
        if not any(thread.is_alive() for thread in claiming):
            break
        await asyncio.sleep(_NOTICE_S)
    cut()
    await leaving


def _quiet() -> None:
    logging.getLogger("dbos").setLevel(logging.ERROR)
