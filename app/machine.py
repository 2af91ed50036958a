"""Which machine this is, and whether a process on it is still the same one. Linux; elsewhere leases alone decide."""

import os
from ipaddress import ip_address
from pathlib import Path


def machine_id() -> str:
    """This boot of this machine and this pid namespace; two places with the same id see the same processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116  a link into the kernel, not a path
    except OSError:
        return f"unknown/{os.urandom(8).hex()}"


def pid_start(pid: int) -> str | None:
    """When process `pid` started, in the kernel's own ticks; None when it is gone (a zombie is gone)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def is_gone(pid: int, start: str) -> bool:
    """Whether the process that started then under this pid has ended. Only for processes of this `machine_id`."""
    seen = pid_start(pid)
    return seen != start if seen is not None else _is_nobody(pid)


def _is_nobody(pid: int) -> bool:
    """Of a process that cannot be seen, or is a zombie. Another user's may be hidden (`hidepid`), and live."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can be there."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
