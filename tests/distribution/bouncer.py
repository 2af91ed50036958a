"""PgBouncer in front of an estate, as one finds it: it hands a connection on after each transaction."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from tests.debian import everyones_folder, program
from tests.estate import Estate
from tests.kit import until

_NOBODY = 65534
# Few sessions, so that they are shared even by the little that a test does.
_INI = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
logfile = {folder}/log
"""


@contextmanager
def pooled(estate: Estate, *, mode: str = "transaction", size: int = 2) -> Generator[Estate]:
    """The same estate by way of the pooler. Skips where there is none."""
    binary, env = program("pgbouncer", packages=["pgbouncer", "libc-ares2", "libevent-2.1-7"])
    listen = _free_port()
    folder = Path(tempfile.mkdtemp(dir=everyones_folder()))
    server = make_url(estate.server.url)
    (folder / "users.txt").write_text('"people" ""\n"hands" ""\n"dba" ""\n')
    (folder / "ini").write_text(
        _INI.format(
            host=server.query["host"], port=server.query["port"], listen=listen, folder=folder, mode=mode, size=size
        )
    )
    (folder / "log").touch()
    who = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    if who:
        for path in (folder, *folder.iterdir()):
            os.chown(path, _NOBODY, _NOBODY)
    process = subprocess.Popen([binary, folder / "ini"], env={**os.environ, **env}, stderr=subprocess.DEVNULL, **who)
    try:
        url = server.set(host="127.0.0.1", port=listen).difference_update_query(["host", "port"])
        behind = Estate(estate.server, url.render_as_string(hide_password=False))
        until("the pooler answers", lambda: _answers(behind.url("people")))
        yield behind
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
