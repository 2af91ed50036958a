"""A Postgres of a test's own, which it may shoot."""

import os
import signal
from pathlib import Path

from tests.kit import until
from transactions.local import LocalPostgres, join


class Server:
    """Joined in the folder `home`; leave it with `joined.leave(force=True)`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.joined: LocalPostgres = join(home)

    def shoot(self) -> None:
        """Immediate shutdown: no checkpoint, every connection cut."""
        pid = int((self.joined.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGQUIT)
        until("the server is gone", lambda: not Path(f"/proc/{pid}").exists())

    def start(self) -> None:
        join(self._home).leave()  # not the last member, so the server stays
