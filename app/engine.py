"""The one adapter around DBOS: configuration, launch, the queue, recovery of another executor's work, shutdown."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dbos import DBOS, DBOSClient, DBOSConfig, _dbos  # pyright: ignore[reportPrivateUsage]

from steps.serializer import TypedJson
from transactions.database import only_while, try_elsewhere

QUEUE = "surefoot"
_APPLICATION = "surefoot"
WORKFLOW = "surefoot.segment"
_DESTROY_S = 10.0
_NOTICE_S = 0.05
_NOTICES_MAX = 40
_LOOK_S = 0.02
_QUIET_LOOKS = 3
_CLAIMER = "queue-worker-"  # what DBOS calls the threads that claim

Segment = Callable[[str, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`executor_id` is unique per process start; `idle_transaction_s` is below the lease; `connect` connects.

    still_mine: raises once this executor may not act any more; then nothing is claimed and no step is recorded.
    """

    url: str
    connect: Callable[[], object]
    executor_id: str
    version: str
    queue_poll_s: float
    runs_at_once: int
    idle_transaction_s: float
    still_mine: Callable[[], None]


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
    launched = _dbos._dbos_global_instance  # pyright: ignore[reportPrivateUsage]
    assert launched is not None
    only_while(launched._sys_db.engine, settings.still_mine)  # pyright: ignore[reportPrivateUsage]
    try_elsewhere(launched._sys_db.engine)  # pyright: ignore[reportPrivateUsage]
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
    return await asyncio.to_thread(recover_now, executor_id)


def recover_now(executor_id: str) -> Sequence[str]:
    """The same, from a thread without a loop."""
    recovered = DBOS._recover_pending_workflows([executor_id])  # pyright: ignore[reportPrivateUsage]
    return [handle.get_workflow_id() for handle in recovered]


async def cancel(workflow_ids: Sequence[str]) -> None:
    """Mark workflows of segments that were given up as cancelled."""
    for workflow_id in workflow_ids:
        await DBOS.cancel_workflow_async(workflow_id)


def stop_claiming() -> None:
    """Claim nothing more from any queue; what is claimed goes on. The first thing that DBOS does to shut down."""
    running = _dbos._dbos_global_instance  # pyright: ignore[reportPrivateUsage]
    for event in () if running is None else running.background_thread_stop_events:
        event.set()


async def until_idle(timeout_s: float) -> bool:
    """After `stop_claiming`: whether all that was claimed has ended and is recorded within `timeout_s`."""
    ends_at = asyncio.get_running_loop().time() + timeout_s
    quiet = 0
    while quiet < _QUIET_LOOKS:  # what a queue's thread has claimed last begins a moment after that has ended
        if asyncio.get_running_loop().time() >= ends_at:
            return False
        await asyncio.sleep(_LOOK_S)
        quiet = quiet + 1 if _is_idle() else 0
    return True


def is_claiming() -> bool:
    """Whether a thread of the engine still looks into a queue, or hands on what it has just claimed there."""
    return bool(_claimers())


def _claimers() -> Sequence[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(_CLAIMER)]


def _is_idle() -> bool:
    running = _dbos._dbos_global_instance  # pyright: ignore[reportPrivateUsage]
    return not is_claiming() and (running is None or not running._active_workflows_set.activeList())  # pyright: ignore[reportPrivateUsage]


async def destroy() -> None:
    """Leave, whatever still goes on here; `stop_claiming` comes first. On a thread of its own: the loop lives on."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()

    def leave() -> None:
        try:
            DBOS.destroy(destroy_registry=True)
        finally:
            with contextlib.suppress(RuntimeError):  # nobody has waited
                loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=leave, name="dbos-destroy", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(gone.wait(), _DESTROY_S)


async def abandon(cut: Callable[[], None]) -> None:
    """Leave the engine of a worker whose loop stands still for good. `cut` takes the database away from it.

    Its threads are told to end first, and then find no database; without one they would try again for ever. They are
    waited for only so long: one may be handing a workflow to the loop.
    """
    dead = _dbos._dbos_global_instance  # pyright: ignore[reportPrivateUsage]
    if dead is not None and dead._sys_db_field is not None:  # pyright: ignore[reportPrivateUsage]
        dead._sys_db_field._retry_connection_errors = False  # pyright: ignore[reportPrivateUsage]
        dead._background_threads.clear()  # pyright: ignore[reportPrivateUsage]
    claiming = _claimers()
    leaving = asyncio.create_task(destroy())
    await asyncio.sleep(_NOTICE_S)
    for _ in range(_NOTICES_MAX):
        if not any(thread.is_alive() for thread in claiming):
            break
        await asyncio.sleep(_NOTICE_S)
    cut()
    await leaving


def _quiet() -> None:
    logging.getLogger("dbos").setLevel(logging.ERROR)
