"""What the services share: one SQLite file that survives a kill, a loopback socket, and the command line."""

from __future__ import annotations

import argparse
import socket
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUSY_TIMEOUT_S = 10.0
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service lives: its listening socket and its file."""

    listener: socket.socket
    file: Path

    @property
    def host(self) -> str:
        return str(self.listener.getsockname()[0])

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])


@contextmanager
def transaction(file: Path, *, create: bool = False) -> Generator[sqlite3.Connection]:
    """One transaction on the file, on disk when the block has ended; rolled back when it raises.

    Raises sqlite3.OperationalError when there is no such file and `create` does not ask for one.
    """
    mode = "rwc" if create else "rw"  # readers too may have to roll back what a killed service left half written
    connection = sqlite3.connect(
        f"{file.resolve().as_uri()}?mode={mode}", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("pragma synchronous = full")
        connection.execute("begin immediate" if create else "begin")
        yield connection
        connection.execute("commit")
    finally:
        connection.close()  # an open transaction is rolled back by this


def take_place(name: str, arguments: Sequence[str] | None = None) -> Place:
    """Reads `--host`, `--port` and `--file` and listens. Ends the process with one sentence when it cannot."""
    parser = argparse.ArgumentParser(prog=f"python -m app.demo.worlds.{name}")
    parser.add_argument("--host", default=HOST, help="address to listen on")
    parser.add_argument("--port", type=int, required=True, help="port; 0 picks a free one")
    parser.add_argument("--file", type=Path, required=True, help="SQLite file that keeps everything")
    given = parser.parse_args(arguments)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port of a killed service is free at once
    try:
        listener.bind((given.host, given.port))
    except (OSError, OverflowError) as error:
        listener.close()
        parser.exit(2, f"{name}: cannot listen on {given.host}:{given.port} ({error}); choose another --port, or 0.\n")
    listener.listen(128)
    return Place(listener=listener, file=given.file)


def announce(place: Place, scheme: str) -> None:
    """Tells whoever started the service that it can be reached from now on."""
    print(f"ready {scheme}://{place.host}:{place.port}", flush=True)
