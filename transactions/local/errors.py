"""The one error of the local Postgres, and how other libraries' errors become it."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg


class LocalPostgresError(RuntimeError):
    """The local Postgres cannot be had. The message is one sentence that ends with what to do next."""


@contextmanager
def explained(home: Path) -> Generator[None]:
    """Whatever fails inside is raised as `LocalPostgresError` that names the folder."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalPostgresError(
            f"the local Postgres of {home} cannot be used ({_reason(error)}): make the folder usable for this user, "
            "choose another folder, or set DATABASE_URL"
        ) from error
    except psycopg.Error as error:
        raise LocalPostgresError(
            f"the local Postgres of {home} runs but did not do as told ({_reason(error)}): try again, "
            "or set DATABASE_URL"
        ) from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
