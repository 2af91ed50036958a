"""The Postgres server of a session: the one that is given, or an embedded one that ends with the session."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transactions.local import LocalPostgres, join

_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Server:
    """`url`: a database on it, from which others may be made. `restart`: end it at once and start it again, if it is
    ours to end.
    """

    url: str
    restart: Callable[[], Awaitable[None]] | None = None


@contextmanager
def database_server(url: str | None, folder: Path) -> Generator[Server]:
    """Raises LocalPostgresError."""
    if url is not None:
        yield Server(url)
        return
    folder.chmod(0o755)  # as root, the server is another user, who has to come by
    home = folder / "postgres"
    server = join(home)

    async def restart() -> None:
        await asyncio.to_thread(_restart, server, home)

    try:
        yield Server(server.url, restart)
    finally:
        server.leave(force=True)


def _restart(server: LocalPostgres, home: Path) -> None:
    """An immediate shutdown: no checkpoint, no goodbye. What was committed is found in the log at the start."""
    postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGQUIT)
    with contextlib.suppress(ProcessLookupError):
        while os.kill(postmaster, 0) is None:
            time.sleep(_LOOK_S)
    join(home)  # as long as this process lives it is a member, so that the server stays
