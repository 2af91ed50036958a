"""A worker inside the test's own process, on a thread and a loop of its own, that can be made to die there.

Its death: one thread passes the failpoint and never goes on (`transactions.failpoints`). As that is the thread of the
loop, everything the worker does stands still with it: no `finally` runs, no task goes on. Then its line to the database
is cut, so that the server ends its transactions as it would for a dead process, and its heartbeat and the engine's
threads end. Its row stays as it is.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from app import engine, wiring
from app.crashtest.line import Line
from app.settings import Settings
from app.worker import Worker
from steps import DurableAgent
from transactions import WorkerId, failpoints

_STOP_S = 20.0
_LOOK_S = 0.01


class Actor:
    """One worker. `begin()`, and then either `stop()` or `die()`; both are called from another loop than its own."""

    def __init__(self, url: str, agents: Sequence[DurableAgent[Any]], settings: Settings) -> None:
        self._url = url
        self._agents = agents
        self._settings = settings
        self._line = Line()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self.failed: BaseException | None = None
        self.ended_itself: str | None = None

    @property
    def worker_id(self) -> WorkerId | None:
        """None before it is built."""
        return None if self._worker is None else self._worker.worker_id

    async def begin(self) -> None:
        """Returns while it still starts: it may be made to die there too."""
        url = await self._line.open(self._url)
        self._thread = threading.Thread(target=self._run, args=(url,), name="surefoot-rehearsal", daemon=True)
        self._thread.start()

    def _run(self, url: str) -> None:
        try:
            asyncio.run(self._work(url))
        except BaseException as error:  # told to whoever looks: it must not get lost with the thread
            self.failed = error

    async def _work(self, url: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = wiring.build_worker(url, self._agents, self._settings, end=self._end)
        try:
            await self._worker.start()
            await self._stopping.wait()
            await self._worker.stop()
        finally:
            await self._worker.database.close()

    def _end(self, why: str) -> None:
        """What ends the process of a worker that lost its lease or was fenced, and here only the worker."""
        self.ended_itself = why
        failpoints.freeze()

    async def stop(self) -> bool:
        """As a deploy does: it ends what it is at, or hands it on, and releases its lease. False: it died over that."""
        assert self._thread is not None
        deadline = time.monotonic() + _STOP_S
        while self._thread.is_alive():
            if self._loop is not None:  # not before it has begun
                with contextlib.suppress(RuntimeError):  # not any more when it has ended by itself
                    self._loop.call_soon_threadsafe(self._stopping.set)
            if time.monotonic() > deadline:
                await self.die()
                return False
            await asyncio.sleep(_LOOK_S)
        self._line.cut()
        return True

    async def die(self) -> None:
        """As a process dies. Leaves a sleeping thread and its open files until the process ends."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(failpoints.freeze)
        heart = None if self._worker is None else asyncio.create_task(asyncio.to_thread(self._worker.lease.stop))
        await engine.abandon(self._line.cut)
        if heart is not None:
            await heart


@contextmanager
def armed(point: str, passage: int) -> Generator[None]:
    """Arm a point for the threads of this process; `struck()` tells."""
    os.environ[failpoints.ARMED] = f"{point}:{passage}:freeze"
    try:
        yield
    finally:
        os.environ.pop(failpoints.ARMED, None)


def struck() -> bool:
    """Whether the armed point was passed."""
    return failpoints.ARMED not in os.environ
