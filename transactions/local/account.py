"""Who runs Postgres: this user, or `nobody` when we are root, because Postgres refuses root."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transactions.local.errors import LocalPostgresError

SHELL_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has ended: its exit code, and what it wrote to both outputs."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Account:
    """The system user that runs Postgres and owns its files. `switched`: we are root and it is another one."""

    name: str
    uid: int
    gid: int
    switched: bool

    def run(self, command: Sequence[str | Path], *, cwd: Path, timeout_s: float, keep: Sequence[int] = ()) -> Finished:
        """Run a program as this user; it inherits the descriptors `keep`. Killed and raised after `timeout_s`."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
        with tempfile.TemporaryFile() as output:  # not a pipe: a server that inherits it would keep it open
            code = subprocess.run(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=timeout_s,
                pass_fds=keep,
                user=self.uid if self.switched else None,
                group=self.gid if self.switched else None,
                extra_groups=[] if self.switched else None,
                check=False,
            ).returncode
            output.seek(0)
            return Finished(code, output.read().decode(errors="replace"))

    def shell(self, script: str, *arguments: str | Path) -> bool:
        """Whether a /bin/sh script succeeds as this user; the arguments are its $1, $2, ..."""
        command = ["/bin/sh", "-c", script, "sh", *arguments]
        return self.run(command, cwd=Path("/"), timeout_s=SHELL_TIMEOUT_S).code == 0

    def can_enter(self, folder: Path) -> bool:
        return self.shell('cd -P -- "$1"', folder)


def current() -> Account:
    """The account for this process. LocalPostgresError where the system has no name for it."""
    uid = os.geteuid()
    if uid == 0:
        return _nobody()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise LocalPostgresError(
            f"user id {uid} has no entry in the system's user list, which Postgres needs: "
            "run as a listed user, or set DATABASE_URL"
        ) from None
    return Account(entry.pw_name, uid, os.getegid(), switched=False)


def _nobody() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise LocalPostgresError(
            "Postgres refuses to run as root and this system has no user `nobody` to run it: "
            "run as a normal user, or set DATABASE_URL"
        ) from None
    account = Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switched=True)
    try:
        account.shell("true")
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalPostgresError(
            f"Postgres refuses to run as root and this system does not let root act as `nobody` ({error}): "
            "run as a normal user, or set DATABASE_URL"
        ) from error
    return account
