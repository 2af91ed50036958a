"""Locks between processes. The kernel drops them when their holder dies, however it dies.

Every function opens the file anew, so two holders in one process exclude each other like two processes do.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from transactions.local.errors import LocalPostgresError

POLL_S = 0.02


def shared(path: Path) -> int:
    """A descriptor that holds the file's shared lock until it is closed. The caller knows that nobody excludes it."""
    descriptor = _opened(path)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def try_exclusive(path: Path) -> int | None:
    """A descriptor that holds the file's exclusive lock, or None while anybody holds any lock of it."""
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def exclusive(path: Path, *, timeout_s: float) -> Generator[None]:
    """Hold the file's exclusive lock, or raise LocalPostgresError when it is not free in time."""
    deadline = time.monotonic() + timeout_s
    while (descriptor := try_exclusive(path)) is None:
        if time.monotonic() > deadline:
            raise LocalPostgresError(
                f"another process has been starting or stopping the local Postgres for {timeout_s:.0f} s "
                f"(it holds {path}): end that process and try again, or set DATABASE_URL"
            )
        time.sleep(POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
