"""A Postgres of a test's own, which it may shoot."""

import os
import signal
from pathlib import Path

import psycopg

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

    def takes_writes(self, yes: bool) -> None:
        """From the next transaction on, in every session."""
        with psycopg.connect(self.joined.url, autocommit=True) as owner:
            owner.execute("set default_transaction_read_only = off")
            owner.execute(f"alter system set default_transaction_read_only = {'off' if yes else 'on'}".encode())
            owner.execute("select pg_reload_conf()")
