"""The heartbeat of a worker: a thread of its own, a connection of its own, and a local deadline that needs neither."""

import logging
import os
import threading
import time
from collections.abc import Callable

import psycopg
from sqlalchemy import make_url

from transactions.errors import Fenced
from transactions.failpoints import failpoint
from transactions.ids import WorkerId
from transactions.statements import load

_log = logging.getLogger("surefoot.lease")
EXIT_LEASE_LOST = 75  # EX_TEMPFAIL: start me again
_GUARD_S = 0.05


def end_process(why: str) -> None:
    """Log and end at once, without clean-up: nothing of this process may act any more."""
    _log.critical(
        "%s. Its runs are safe and go on elsewhere; start the worker again (a supervisor does it for you).", why
    )
    os._exit(EXIT_LEASE_LOST)


class Lease:
    """Renews the worker's row; `check()` raises once the lease cannot be proved any more."""

    def __init__(
        self, url: str, worker_id: WorkerId, lease_s: float, on_lost: Callable[[str], None] = end_process
    ) -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._worker_id = worker_id
        self._lease_s = lease_s
        self._on_lost = on_lost
        self._deadline = 0.0
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, registered_at: float) -> None:
        """`registered_at`: the monotonic time before the row was inserted."""
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

    def check(self) -> None:
        """Raises Fenced when this worker may not act any more: its lease ran out by the local clock."""
        if time.monotonic() > self._deadline:
            raise Fenced(f"worker {self._worker_id} lost its lease")

    def _guard_loop(self) -> None:
        while not self._stopping.wait(_GUARD_S):
            if time.monotonic() > self._deadline:
                self._on_lost(f"Worker {self._worker_id} lost its lease: not renewed for {self._lease_s:g} s")
                return

    def _renew_loop(self) -> None:
        statement = str(load("workers")["renew_if_live"]).replace(":worker_id", "%s")
        connection: psycopg.Connection | None = None
        while not self._stopping.wait(self._lease_s / 5):
            started = time.monotonic()
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(self._url, autocommit=True, connect_timeout=2, options=self._options())
                failpoint("lease.before_renew")
                row = connection.execute(statement.encode(), (self._worker_id,)).fetchone()
                failpoint("lease.after_renew")
            except psycopg.Error as error:
                _log.warning(
                    "the lease could not be renewed (%s); trying again", str(error).strip() or type(error).__name__
                )
                if connection is not None:
                    connection.close()
                connection = None
                continue
            if row is None and not self._stopping.is_set():
                self._on_lost(f"Worker {self._worker_id} was declared dead by another worker")
                return
            self._deadline = started + self._lease_s  # counted from before the request
        if connection is not None:
            connection.close()

    def _options(self) -> str:
        timeout_ms = int(self._lease_s * 1000 / 4)
        return f"-c role=surefoot_worker -c statement_timeout={timeout_ms} -c lock_timeout={timeout_ms}"
