"""Hosts of one machine, in network, process and name spaces of their own, with a bridge between them that can be cut.

Everything is inside namespaces that are made here and removed again: no interface, route or address of the machine's
own changes. Linux, as root. What is cut is cut without a word: packets are dropped, nothing is reset or unreachable.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "CRASHTEST_HOST"  # the namespace that a forked process enters
PID_FILE = "CRASHTEST_PID_FILE"
_PREFIX = "sf"
_NETWORK = "10.213.0"
_HUB_NUMBER = 1
_HUB = f"{_NETWORK}.{_HUB_NUMBER}"
_TOOLS = ("ip", "setpriv")
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x4000000, 0x20000000, 0x40000000
_MS_REC_PRIVATE = 0x4000 | 1 << 18
_PR_SET_PDEATHSIG = 1
_TRY = "surefoot-try"


@dataclass(frozen=True, slots=True)
class Host:
    """`name` is its hostname; `namespace` that of its network; `port` is where the hub's bridge has its line."""

    name: str
    namespace: str
    port: str
    number: int


@dataclass(frozen=True, slots=True)
class Network:
    """`hub`: the namespace with the bridge, for what all hosts reach at `address`."""

    hub: str
    address: str
    subnet: str
    hosts: Sequence[Host]

    def cut(self, host: Host) -> None:
        """From now on nothing passes to it or from it."""
        _ip("-n", self.hub, "link", "set", host.port, "nomaster")

    def mend(self, host: Host) -> None:
        _ip("-n", self.hub, "link", "set", host.port, "master", "br0")

    def command(self, uid: int, gid: int, *words: str | Path) -> Sequence[str | Path]:
        """A command line that runs `words` in the hub, as that user."""
        user = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups")
        return ("ip", "netns", "exec", self.hub, *user, *words)


def why_not() -> str | None:
    """Why no such network can be made here, in words; None: it can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{missing[0]} is not installed"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    try:
        _ip("netns", "add", f"{_TRY}-{os.getpid()}")
        try:
            _ip("-n", f"{_TRY}-{os.getpid()}", "link", "add", "br0", "type", "bridge")
        finally:
            _ip("netns", "del", f"{_TRY}-{os.getpid()}")
    except subprocess.CalledProcessError as error:
        return f"this machine does not let us make network namespaces ({error.stderr.strip()})"
    return None


@contextmanager
def network(names: Sequence[str]) -> Generator[Network]:
    """A hub and a host of each name. Removed at the end, whatever becomes of the block."""
    _sweep()
    prefix = f"{_PREFIX}{os.getpid()}"
    hub = f"{prefix}-hub"
    hosts = [Host(name, f"{prefix}-{name}", f"to-{name}", number) for number, name in enumerate(names, _HUB_NUMBER + 1)]
    try:
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "br0", "address", _mac(_HUB_NUMBER), "type", "bridge")
        _ip("-n", hub, "address", "add", f"{_HUB}/24", "dev", "br0")
        for device in ("lo", "br0"):
            _ip("-n", hub, "link", "set", device, "up")
        for host in hosts:
            _add(hub, host)
        yield Network(hub, _HUB, f"{_NETWORK}.0/24", hosts)
    finally:
        for namespace in (hub, *(host.namespace for host in hosts)):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def _add(hub: str, host: Host) -> None:
    """Join it to the hub. Who is where is told to both for good: nobody has to ask for it on a line that is cut."""
    _ip("netns", "add", host.namespace)
    _ip("link", "add", "eth0", "netns", host.namespace, "type", "veth", "peer", "name", host.port, "netns", hub)
    _ip("-n", host.namespace, "address", "add", f"{_NETWORK}.{host.number}/24", "dev", "eth0")
    _ip("-n", hub, "link", "set", host.port, "master", "br0")
    _ip("-n", hub, "link", "set", host.port, "up")
    for device in ("lo", "eth0"):
        _ip("-n", host.namespace, "link", "set", device, "up")
    _ip("-n", host.namespace, "link", "set", "eth0", "address", _mac(host.number))
    for namespace, device, number in ((hub, "br0", host.number), (host.namespace, "eth0", _HUB_NUMBER)):
        there = f"{_NETWORK}.{number}"
        _ip("-n", namespace, "neighbor", "replace", there, "lladdr", _mac(number), "nud", "permanent", "dev", device)


def _mac(number: int) -> str:
    return f"02:00:0a:d5:00:{number:02x}"


def _sweep() -> None:
    """Remove what such a network left behind whose process was killed."""
    for line in _ip("netns", "list").splitlines():
        namespace = line.split()[0]
        pid = namespace.partition("-")[0].removeprefix(_PREFIX)
        if namespace.startswith(_PREFIX) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            _ip("netns", "del", namespace)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


# In the process that enters.


def enter_hub() -> None:
    """For `Forks.fork(before=...)`: the network of the namespace CRASHTEST_HOST."""
    _enter_network(os.environ[HOST])


def enter_host() -> None:
    """For `Forks.fork(before=...)`: be the first process of a machine that has just started, named CRASHTEST_HOST.

    The process that calls this waits for that one and ends as it does. The file CRASHTEST_PID_FILE tells its id to the
    outside.
    """
    namespace = os.environ[HOST]
    _enter_network(namespace)
    _libc("unshare", _CLONE_NEWPID | _CLONE_NEWUTS | _CLONE_NEWNS)
    pid = os.fork()
    if pid:
        Path(os.environ[PID_FILE]).write_text(str(pid))
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(code if code >= 0 else 128 - code)
    _libc("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    name = namespace.partition("-")[2].encode()
    _libc("sethostname", name, len(name))
    _libc("mount", None, b"/", None, _MS_REC_PRIVATE, None)
    _libc("mount", b"proc", b"/proc", b"proc", 0, None)


def _enter_network(namespace: str) -> None:
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _libc("setns", there, _CLONE_NEWNET)
    finally:
        os.close(there)


def _libc(function: str, *arguments: int | bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
