"""The Postgres server of a session: the one that is given, or an embedded one that ends with the session."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transactions.local import LocalPostgres, LocalPostgresError, join

_LOOK_S = 0.01
_MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory, where the system has one
_MEMORY_MIN_BYTES = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Server:
    """`url`: a database on it, from which others may be made. `restart`: end it at once and start it again, if it is
    ours to end.
    """

    url: str
    restart: Callable[[], Awaitable[None]] | None = None


@contextmanager
def database_server(url: str | None, *, in_memory: bool = False) -> Generator[Server]:
    """in_memory: where a commit need not be what it is on a disk, and there is room. Raises LocalPostgresError."""
    if url is not None:
        yield Server(url)
        return
    with server_folder(in_memory=in_memory) as home:
        server = join(home)

        async def restart() -> None:
            await asyncio.to_thread(_restart, server, home)

        try:
            yield Server(server.url, restart)
        finally:
            server.leave(force=True)


@contextmanager
def server_folder(*, in_memory: bool) -> Generator[Path]:
    """A folder for an embedded Postgres: every user can enter it, for as root the server is another one.

    in_memory: if there is room. A case makes and drops a database, a thousand files, and a file system on a disk takes
    ten times as long for those, looking for numbers that no file has had a moment ago. It stays when the server does
    not start, whose error names a log in it.
    """
    roomy = in_memory and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_MIN_BYTES
    folder = Path(tempfile.mkdtemp(prefix="surefoot-server-", dir=_MEMORY if roomy else None))
    folder.chmod(0o755)
    try:
        yield folder
    except LocalPostgresError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _restart(server: LocalPostgres, home: Path) -> None:
    """An immediate shutdown: no checkpoint, no goodbye. What was committed is found in the log at the start."""
    postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGQUIT)
    with contextlib.suppress(ProcessLookupError):
        while os.kill(postmaster, 0) is None:
            time.sleep(_LOOK_S)
    join(home)  # as long as this process lives it is a member, so that the server stays
