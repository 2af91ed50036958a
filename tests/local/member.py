"""Processes that join a local Postgres, each driven over a socket: one JSON command a line, one JSON answer.

Run as `python member.py SOCKET`. Every connection gets a process of its own, forked from one that has imported
everything, which spares each the second that the imports take.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from transactions.local import LocalPostgres, LocalPostgresError, join


class Driven:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.joined: list[LocalPostgres] = []

    @property
    def postgres(self) -> LocalPostgres:
        return self.joined[-1]

    def join(self) -> dict[str, Any]:
        self.joined.append(join(self.folder))
        return {"url": self.postgres.url, "data": str(self.postgres.data), "bindir": str(self.postgres.bindir)}

    def leave(self, force: bool = False) -> dict[str, Any]:
        return {"stopped": self.joined.pop().leave(force=force)}

    def query(self, sql: str) -> dict[str, Any]:
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return {"rows": cursor.fetchall() if cursor.description else []}

    def fork(self) -> dict[str, Any]:
        """A child that leaves, with and without force, and lives on until it is killed."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            postgres = self.postgres
            os.write(writing, json.dumps([postgres.leave(force=True), postgres.leave()]).encode())
            os.close(writing)
            threading.Event().wait()
        os.close(writing)
        with open(reading) as answers:  # noqa: PTH123 - a descriptor
            return {"child": child, "stopped": json.load(answers)}

    def fork_silent(self) -> dict[str, Any]:
        """A child that keeps what it inherited until it is killed."""
        child = os.fork()
        if child == 0:
            threading.Event().wait()
        return {"child": child}

    def kill_child(self, child: int) -> dict[str, Any]:
        os.kill(child, 9)
        os.waitpid(child, 0)
        return {}

    def loaded(self, module: str) -> dict[str, Any]:
        return {"loaded": module in sys.modules}


def serve(connection: socket.socket) -> None:
    """Be the process that the first line describes, and obey the others until they end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection.makefile("rw", encoding="utf-8") as lines:
        asked = json.loads(lines.readline())
        os.environ.update(asked["env"])
        if (uid := asked["uid"]) is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        driven = Driven(Path(asked["folder"]))
        reply: dict[str, Any] = {"pid": os.getpid()}
        while True:
            lines.write(json.dumps(reply, default=str) + "\n")
            lines.flush()
            if not (line := lines.readline()):
                return
            command = json.loads(line)
            method: Callable[..., dict[str, Any]] = getattr(driven, command.pop("do"))
            try:
                reply = method(**command)
            except LocalPostgresError as error:
                reply = {"error": str(error)}


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the members
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(sys.argv[1])
        door.listen()
        print("open", flush=True)
        while True:
            connection, _ = door.accept()
            if os.fork() == 0:
                door.close()
                serve(connection)
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    main()
