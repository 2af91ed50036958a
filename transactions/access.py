"""Under which roles of the database a process acts, and whether its login and its connection let it.

surefoot_api    surefoot_admin      the API: one tenant's rows, and no claim; tokens, principals, tenants
surefoot_app    surefoot_worker     a worker: tools, bound to a tenant; its own loops, and the engine
surefoot_retention                  a worker, too: it alone may delete what is over
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import make_url

from transactions.errors import DatabaseUnavailable, Forbidden

_CONNECT_S = 5
_LOOK_S = 5.0
_LOOKS = 3
REMOVES = "surefoot_retention"
NO_RIGHT = (
    "This process's database login may not remove anything, for it has not the role surefoot_retention: workers whose "
    "login has it do so by themselves."
)


@dataclass(frozen=True, slots=True)
class Access:
    """`bound`: the role of transactions of one tenant; `unbound`: of those that serve all; `removes`: whether its login
    is given the role that removes, too.

    options: settings are sent when a connection is made, which a pooler refuses. prepares: the server keeps prepared
    statements, which a pooler that hands a connection on after each transaction does not survive.
    """

    bound: str
    unbound: str
    options: bool
    prepares: bool
    removes: bool

    @property
    def roles(self) -> Sequence[str]:
        """All that its login is given."""
        return (self.bound, self.unbound, *((REMOVES,) if self.removes else ()))


API = Access("surefoot_api", "surefoot_admin", options=False, prepares=False, removes=False)
WORKER = Access("surefoot_app", "surefoot_worker", options=True, prepares=True, removes=True)
ROLES: Sequence[str] = (*API.roles, *WORKER.roles)


def refused(role: str) -> Forbidden:
    """What is said when the database does not let this login act under the role."""
    if role == REMOVES:
        return Forbidden(NO_RIGHT)
    what = "serve the API" if role in (API.bound, API.unbound) else "be a worker"
    return Forbidden(
        f"This login of the database may not {what} ({role}): set DATABASE_URL to one that may, or to that of the "
        "schema's owner; `surefoot migrate --api-login` and `--worker-login` say which do."
    )


async def of_login(url: str) -> Sequence[Access]:
    """What this login may act as. Raises DatabaseUnavailable."""
    async with await _connect(url) as connection:
        return [access for access in (API, WORKER) if await _may(connection, access)]


async def require_api(url: str) -> None:
    """Raises DatabaseUnavailable unless this login may serve the API."""
    async with await _connect(url) as connection:
        if not await _may(connection, API):
            raise DatabaseUnavailable(
                f"The login {connection.info.user} may not serve the API: run `surefoot migrate --api-login "
                f"{connection.info.user}` once as the owner of the schema."
            )


async def require_worker(url: str) -> None:
    """Raises DatabaseUnavailable unless this login may be a worker, on connections that stay its own."""
    async with await _connect(url) as connection:
        if not await _may(connection, WORKER):
            raise DatabaseUnavailable(
                f"The login {connection.info.user} may not run agents: run `surefoot migrate --worker-login "
                f"{connection.info.user}` once as the owner of the schema, or serve the API alone with "
                "`surefoot serve --no-worker`."
            )
    if await hands_connections_on(url):
        raise DatabaseUnavailable(
            "A worker cannot work through this pooler: it hands a connection on after each transaction, and LISTEN, "
            "locks and leases need one that stays. Set DATABASE_URL of workers to the database itself; the API may "
            "stay behind the pooler."
        )


async def hands_connections_on(url: str) -> bool:
    """Whether a pooler in transaction mode is in between: what one connection asks, several sessions answer."""
    async with await _connect(url) as one:
        # A pooler has told a process id of its own when we connected.
        first = await _session(one)
        if one.info.backend_pid == first:
            return False
        try:
            async with asyncio.timeout(_LOOK_S), await _connect(url) as other:
                for _ in range(_LOOKS):
                    async with other.transaction():
                        taken = await _session(other)
                        if taken == first or await _session(one) != first:
                            return True
        except TimeoutError:
            return True  # no session is left for us: a pool that is shared
        return False


async def _may(connection: psycopg.AsyncConnection[Any], access: Access) -> bool:
    cursor = await connection.execute(
        "select count(*) from pg_roles where rolname in (%s, %s)"
        " and pg_has_role(session_user, oid, 'member') and pg_has_role(session_user, oid, 'usage')",
        (access.bound, access.unbound),
    )
    return await cursor.fetchone() == (2,)


async def _session(connection: psycopg.AsyncConnection[Any]) -> int:
    row = await (await connection.execute("select pg_backend_pid()")).fetchone()
    assert row is not None
    return int(row[0])


async def _connect(url: str) -> psycopg.AsyncConnection[Any]:
    parsed = make_url(url)
    try:
        return await psycopg.AsyncConnection.connect(
            parsed.set(drivername="postgresql").render_as_string(hide_password=False),
            autocommit=True,
            connect_timeout=_CONNECT_S,
            prepare_threshold=None,
            application_name="surefoot",
        )
    except psycopg.OperationalError as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DatabaseUnavailable(
            f"The database {parsed.render_as_string(hide_password=True)} cannot be reached ({why}): "
            "start it, or correct DATABASE_URL."
        ) from error
