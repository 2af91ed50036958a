"""Whether this process should be given work now: what load balancers and whoever rolls out ask again and again."""

import asyncio
from functools import cached_property
from typing import Literal

from app.acting.base import AWAY, told_in_words
from app.worker import Worker
from transactions import API, Database, DatabaseUnavailable, Limits, migrate
from transactions.database import is_read_only

_PATIENCE_S = 2.0
_PROBE = Limits(pool_connections=1, connect_s=2, pool_wait_s=_PATIENCE_S)

Standing = Literal["ready", "draining", "lease not renewed", "busy", "read-only", "schema is old"]


class Readiness:
    """Asks on a connection of its own, so that no request and no tool is waited for.

    Under the login's own role: that of an API and that of a worker may both ask for the schema, through a pooler too.
    """

    def __init__(self, database_url: str, lease_s: float) -> None:
        self._database = Database(database_url, _PROBE.within(lease_s), API, application="surefoot probe")

    @cached_property
    def _older(self) -> frozenset[str | None]:
        """Revisions on which this code cannot work: the schema is not there, or has to be migrated.

        A later one is none of them: migrations let the code before them go on, until that is replaced.
        """
        *older, _ = migrate.revisions()
        return frozenset({None, *older})

    async def standing(self, worker: Worker | None, requests: Database) -> Standing:
        """Of this process with its worker, if it has one. Raises DatabaseUnavailable, after 2 s at most.

        requests: where what is asked of the API waits for a connection.
        """
        if worker is not None and worker.draining.is_set():
            return "draining"
        if worker is not None and not worker.lease.is_renewed:
            return "lease not renewed"
        if requests.is_exhausted:
            return "busy"
        try:
            async with (
                asyncio.timeout(_PATIENCE_S),
                told_in_words(),
                self._database.as_login("read") as session,
            ):
                read_only = await is_read_only(session)
                revision = await migrate.revision(session)
        except TimeoutError as error:
            raise DatabaseUnavailable(AWAY) from error
        if revision in self._older:
            return "schema is old"
        return "read-only" if read_only else "ready"

    async def close(self) -> None:
        await self._database.close()
