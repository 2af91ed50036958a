"""Programs of Debian packages that are not installed: fetched once with the ordinary client, unpacked in a folder.

Processes may ask at once: each that finds none fetches it, and the first one's stays.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_FETCH_S = 60


def program(name: str, *, packages: Sequence[str]) -> tuple[Path, Mapping[str, str]]:
    """Where a program is, and what to add to its environment. Skips where it can neither be found nor fetched."""
    if found := shutil.which(name):
        return Path(found), {}
    root = everyones_folder() / f"surefoot-debian-{os.geteuid()}-{name}"
    if not root.exists() and (why := _fetch(root, packages)):
        pytest.skip(f"no {name} is installed here, and its package cannot be had: {why}")
    if root.stat().st_uid != os.geteuid():
        pytest.fail(f"{root} belongs to somebody else: nothing in it is started; remove it, or set TMPDIR")
    libraries = ":".join(str(path) for path in (root / "usr/lib").iterdir() if path.is_dir())
    return next(root.glob(f"usr/*bin/{name}")), {"LD_LIBRARY_PATH": libraries}


def everyones_folder() -> Path:
    """Where another user can go as well: the folder for temporary files, if it is open to others."""
    usual = Path(tempfile.gettempdir()).resolve()
    return usual if all(folder.stat().st_mode & 0o001 for folder in (usual, *usual.parents)) else Path("/var/tmp")


def _fetch(root: Path, packages: Sequence[str]) -> str | None:
    """Download and unpack, or say why not."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "this is no Debian"
    with tempfile.TemporaryDirectory(dir=root.parent) as partial:
        if (why := _unpack(Path(partial), packages)) is not None:
            return why
        Path(partial).chmod(0o755)
        with contextlib.suppress(OSError):  # another process was first
            Path(partial).rename(root)
    return None


def _unpack(root: Path, packages: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            ["apt-get", "download", *packages], cwd=root, capture_output=True, text=True, timeout=_FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it was not there in {_FETCH_S} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["apt-get failed"])[-1]
    for package in root.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, timeout=_FETCH_S)
    return None
