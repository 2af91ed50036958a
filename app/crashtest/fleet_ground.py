"""Where the fleet works: its hosts, a Postgres and services that they reach over the network, and the pace."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.crashtest import hosts
from app.crashtest.fork import Forks
from app.crashtest.ground import Pace, environment, jitter_s, template
from app.crashtest.hosts import Network
from app.crashtest.rounds import rounds
from app.crashtest.subjects import PUBLISHED, TICKETS, counted, start_service
from app.surefoot import Surefoot
from transactions import DatabaseUnavailable, SurefootError
from transactions.clones import rerouted, url_of
from transactions.database import check_server
from transactions.local import account, join

NAMES = ("ada", "bob", "eve")
AGENTS = "app.crashtest.rounds:rounds"
ENTERS_HUB, ENTERS_HOST = (f"{hosts.__name__}:{function.__name__}" for function in (hosts.enter_hub, hosts.enter_host))
_DATABASE = "fleet"
_TMP = "/tmp"  # noqa: S108  the folder in it has a random name
_PORT = 5432
_STOP_S = 30.0
_LOOK_S = 0.05
_LEASE_S = 3.0
_TIMES_JITTER = 10.0


class FleetFailed(SurefootError):
    """The fleet could not be set up; the message says why."""


@dataclass(frozen=True, slots=True)
class FleetGround:
    """`surefoot`: for the driver, which is on no host. `files`: what the services keep, by what counts in it."""

    folder: Path
    network: Network
    forks: Forks
    surefoot: Surefoot
    pace: Pace
    env: Mapping[str, str]
    files: Mapping[Path, str]

    def count(self, run_id: str) -> Mapping[str, int]:
        """How often each effect of a run is in the world."""
        return {effect: n for file, sql in self.files.items() for effect, n in counted(file, sql, run_id)}


@asynccontextmanager
async def fleet_ground() -> AsyncGenerator[FleetGround]:
    """Everything for a fleet, removed at the end. Raises FleetFailed, ForkFailed, LocalPostgresError."""
    if (why := hosts.why_not()) is not None:
        raise FleetFailed(f"The fleet needs network namespaces, and {why}: run it as root on a machine that has them.")
    # Where the user that runs Postgres can enter, whatever TMPDIR says.
    temporary = tempfile.TemporaryDirectory(prefix="surefoot-fleet-", dir=_TMP)
    with temporary, hosts.network(NAMES) as network:
        folder = Path(temporary.name)
        forks = Forks(environment(AGENTS), folder / "forks.log")
        with _postgres(network, folder) as server_url:
            async with forks, template(server_url, _DATABASE, [rounds]):
                env, files = await _services(network, forks, folder)
                url = url_of(server_url, _DATABASE)
                surefoot = Surefoot(url, [rounds])
                lease_s = max(_LEASE_S, _TIMES_JITTER * await jitter_s())
                pace = Pace(0.0, lease_s, lease_s / 12, 60.0 + 2 * lease_s, 0.0)
                there = {"DATABASE_URL": rerouted(url, network.address, _PORT), "SUREFOOT_DRAIN_S": "5"}
                try:
                    yield FleetGround(
                        folder, network, forks, surefoot, pace, {**forks.env, **pace.env, **env, **there}, files
                    )
                finally:
                    await surefoot.close()


async def _services(network: Network, forks: Forks, folder: Path) -> tuple[Mapping[str, str], Mapping[Path, str]]:
    env: dict[str, str] = {}
    files: dict[Path, str] = {}
    for name, variable, sql in (
        ("tickets", "ROUNDS_TICKETS_URL", TICKETS),
        ("publishing", "ROUNDS_PUBLISHING_URL", PUBLISHED),
    ):
        file = folder / f"{name}.sqlite"
        env[variable] = await start_service(
            name, file, forks, host=network.address, env={hosts.HOST: network.hub}, before=[ENTERS_HUB]
        )
        files[file] = sql
    return env, files


@contextmanager
def _postgres(network: Network, folder: Path) -> Generator[str]:
    """A server in the hub; its URL for this process, by a socket. The hosts reach it at the hub's address."""
    folder.chmod(0o755)
    who = account.current()
    made = join(folder / "postgres")  # for its data folder and its programs
    made.leave(force=True)
    with (made.data / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {network.subnet} trust\n")
    socket = folder / "socket"
    socket.mkdir()
    shutil.chown(socket, who.uid, who.gid)
    settings = {
        "listen_addresses": network.address,
        "unix_socket_directories": str(socket),
        "max_connections": "300",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = network.command(who.uid, who.gid, made.bindir / "postgres", "-D", made.data, *options)
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_plain())
    try:
        url = f"postgresql://postgres@/postgres?host={socket}&port={_PORT}"
        _until_it_answers(server, url, folder / "server.log")
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # fast: whoever is connected is cut off
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    while server.poll() is None:
        with contextlib.suppress(DatabaseUnavailable):
            check_server(url)
            return
        time.sleep(_LOOK_S)
    raise FleetFailed(f"Postgres did not start in the hub: {log.read_text(errors='replace')[-500:]}")
