"""A private Postgres for each folder, shared by every process that asks for it. Linux and macOS.

    with join(Path("~/.surefoot")) as postgres:
        connect(postgres.url)  # postgresql://postgres@/surefoot?host=%2Fhome%2F...&port=5432

For development and small installations; with DATABASE_URL nothing of this is used. The programs come from
`surefoot[local]` or from an installed Postgres; SUREFOOT_POSTGRES_BINDIR names others.
"""

import sys

if sys.platform == "win32":
    raise ImportError("the local Postgres needs Linux or macOS: set DATABASE_URL")

from transactions.local.errors import LocalPostgresError
from transactions.local.server import LocalPostgres, join

__all__ = ["LocalPostgres", "LocalPostgresError", "join"]
