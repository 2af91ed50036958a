"""How a process with a worker ends: SIGTERM or SIGINT once, and again; in time, whatever its loop is at.

The first signal begins to drain. A second one ends the process where it is, with 128 + its number: nothing is lost,
for the worker is taken over as one that was killed. If the drain outlasts its time, a thread releases the lease and
ends the process, so that not even a tool that stops the loop keeps it.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from app.worker import leaving_s

_log = logging.getLogger("surefoot.leaving")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CANCEL_S = 1.0
_ABANDON_S_MAX = 2.0
_DRAIN_S_MIN = 1.0  # so that with no time at all there is some to hand over in good order


class Leaving:
    """Made on the main thread, before there is a loop."""

    def __init__(self, drain_s: float, abandon: Callable[[], object]) -> None:
        """abandon: called on another thread when the drain's time is nearly over; with it the process ends."""
        time_s = max(drain_s, _DRAIN_S_MIN)
        self._time_s = time_s - min(_ABANDON_S_MAX, leaving_s(time_s) / 2)
        self._abandon = abandon
        self._loop = asyncio.new_event_loop()
        self._asked = asyncio.Event()
        self._again = False
        for number in _SIGNALS:
            signal.signal(number, self._told)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end. Tasks and threads that it leaves behind are not waited for: see `end`."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(work)
        except BaseException:
            self._loop.run_until_complete(_cancelled(asyncio.all_tasks(self._loop)))
            raise

    async def asked(self) -> None:
        """Until the process was asked to leave."""
        await self._asked.wait()

    def _told(self, number: int, _: FrameType | None) -> None:
        if self._again:
            os._exit(128 + number)
        self._again = True
        clock = threading.Timer(self._time_s, self._out_of_time)
        clock.daemon = True
        clock.start()
        self._loop.call_soon_threadsafe(self._asked.set)

    def _out_of_time(self) -> None:
        _log.warning("the drain is not over after %g s: its runs go on elsewhere", self._time_s)
        abandoning = threading.Thread(target=self._abandon, daemon=True)
        abandoning.start()
        abandoning.join(_ABANDON_S_MAX)
        end()


async def _cancelled(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_S)


def end() -> None:
    """End this process well and at once, whatever threads and tasks there still are."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
