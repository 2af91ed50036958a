"""The Postgres server of a session: the one that is given, or an embedded one that ends with the session."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from transactions.local import join


@contextmanager
def database_server(url: str | None, folder: Path) -> Generator[str]:
    """The URL of a database on it, from which others may be made. Raises LocalPostgresError."""
    if url is not None:
        yield url
        return
    folder.chmod(0o755)  # as root, the server is another user, who has to come by
    server = join(folder / "postgres")
    try:
        yield server.url
    finally:
        server.leave(force=True)
