"""The heartbeat of a worker: a thread of its own, a connection of its own, and a local deadline that needs neither."""

import asyncio
import logging
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from sqlalchemy import make_url

from transactions.connecting import Limits, application_name, parameters
from transactions.errors import Fenced
from transactions.failpoints import failpoint
from transactions.ids import WorkerId
from transactions.statements import load

_log = logging.getLogger("surefoot.lease")
EXIT_LEASE_LOST = 75  # EX_TEMPFAIL: start me again
_GUARD_S = 0.05
_LOOK_S_MAX = 1.0
_TICKS = 10  # so many in the time that the loop may stand still
_RENEWALS = 5  # so many in the time of a lease
_AGAIN_S = 0.5  # after a failure: the database may be back before the lease is over
_CONNECT_S = 2  # the least that libpq takes
_NOTHING_LEFT = float("-inf")
# It goes on while the machine sleeps, where the system has such a clock.
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds on the clock that leases are measured with: no step of the time of day moves it."""
    return time.clock_gettime(_CLOCK)


def end_process(why: str) -> None:
    """Log and end at once, without clean-up: nothing of this process may act any more."""
    _log.critical(
        "%s. Its runs are safe and go on elsewhere; start the worker again (a supervisor does it for you).", why
    )
    os._exit(EXIT_LEASE_LOST)


class Lease:
    """Renews the worker's row; `check()` raises once the lease cannot be proved any more.

    It is renewed on a thread, whatever the event loop is at. So that a loop that stands still keeps no run for ever,
    `on_lost` is called, too, when it has not ticked for `still_s` while the process went on.
    """

    def __init__(
        self,
        url: str,
        worker_id: WorkerId,
        lease_s: float,
        on_lost: Callable[[str], None] = end_process,
        still_s: float = math.inf,
    ) -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._worker_id = worker_id
        self._lease_s = lease_s
        self._on_lost = on_lost
        self._still_s = still_s
        self._ticks = 0
        self._deadline = 0.0
        self._moving = threading.Lock()  # of the deadline
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, registered_at: float) -> None:
        """`registered_at`: `now()` before the row was inserted."""
        self._deadline = registered_at + self._lease_s
        self._threads = [
            threading.Thread(target=self._renew_loop, name="lease", daemon=True),
            threading.Thread(target=self._guard_loop, name="lease-guard", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=5)

    async def tick(self) -> None:
        """Say that the loop goes on, until cancelled."""
        while True:
            self._ticks += 1
            await asyncio.sleep(self._still_s / _TICKS)

    def check(self) -> None:
        """Raises Fenced when this worker may not act any more: its lease ran out by the local clock."""
        if now() > self._deadline:
            raise Fenced(f"worker {self._worker_id} lost its lease")

    @property
    def is_renewed(self) -> bool:
        """Whether the lease was renewed as it should be: False long before it is lost."""
        return self._deadline - now() > self._lease_s / 2

    def give_up(self) -> None:
        """From now on this worker may not act any more, by its own will: `check()` raises, and nobody is told."""
        with self._moving:
            self._stopping.set()
            self._deadline = _NOTHING_LEFT

    def release_now(self, why: str) -> bool:
        """Give up, and what `workers.release` does, from any thread and on a connection of its own.

        For a process whose loop does not answer any more; its runs are taken over at once. False: nothing was done, and
        they are when the lease is over.
        """
        self.give_up()
        statement = re.sub(r":(worker_id|why)\b", r"%(\1)s", str(load("workers")["fence_and_release_if_live"]))
        try:
            with self._connect() as connection:
                connection.execute(statement.encode(), {"worker_id": self._worker_id, "why": why})
        except psycopg.Error as error:
            _log.warning("the lease could not be released (%s): it runs out by itself", _words(error))
            return False
        return True

    def _guard_loop(self) -> None:
        ticks, stood_s, seen_at = self._ticks, 0.0, now()
        while not self._stopping.wait(_GUARD_S):
            looked_at = now()
            if looked_at > self._deadline and not self._stopping.is_set():
                self._on_lost(f"Worker {self._worker_id} lost its lease: not renewed for {self._lease_s:g} s")
                return
            # Time in which this thread did not go on either is not the loop's.
            stood_s = 0.0 if ticks != self._ticks else stood_s + min(looked_at - seen_at, _LOOK_S_MAX)
            ticks, seen_at = self._ticks, looked_at
            if stood_s > self._still_s and not self._stopping.is_set():
                self._on_lost(f"Worker {self._worker_id} stands still: its event loop did nothing for {stood_s:.0f} s")
                return

    def _renew_loop(self) -> None:
        statement = str(load("workers")["renew_if_live"]).replace(":worker_id", "%s")
        connection: psycopg.Connection[Any] | None = None
        pause_s = self._lease_s / _RENEWALS
        while not self._stopping.wait(pause_s):
            started = now()
            try:
                if connection is None or connection.closed:
                    connection = self._connect()
                failpoint("lease.before_renew")
                row = connection.execute(statement.encode(), (self._worker_id,)).fetchone()
                failpoint("lease.after_renew")
            except psycopg.Error as error:
                _log.warning("the lease could not be renewed (%s); trying again", _words(error))
                if connection is not None:
                    connection.close()
                connection = None
                pause_s = min(self._lease_s / _RENEWALS, _AGAIN_S) * random.uniform(0.5, 1.0)  # noqa: S311  jitter
                continue
            with self._moving:
                if self._stopping.is_set():
                    break
                if row is not None:
                    self._deadline = started + self._lease_s  # counted from before the request
            if row is None:
                self._on_lost(f"Worker {self._worker_id} was declared dead by another worker")
                return
            pause_s = self._lease_s / _RENEWALS
        if connection is not None:
            connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        limits = Limits(connect_s=_CONNECT_S).within(self._lease_s)
        timeout_ms = int(self._lease_s * 1000 / 4)
        given = parameters(
            limits,
            application=application_name(self._worker_id),
            role="surefoot_worker",
            statement_timeout=timeout_ms,
            lock_timeout=timeout_ms,
        )
        return psycopg.connect(self._url, autocommit=True, **given)


def _words(error: psycopg.Error) -> str:
    return str(error).strip() or type(error).__name__
