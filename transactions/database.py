"""The door to Postgres: one pool, transactions bound to a tenant, and the difference between "down" and "wrong"."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import psycopg
import sqlalchemy
from sqlalchemy import CursorResult, ExceptionContext, TextClause, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import QueuePool

from transactions.access import REMOVES, WORKER, Access, refused
from transactions.connecting import Limits, parameters
from transactions.errors import DatabaseUnavailable, Forbidden, InvalidInput, StoreUnavailable
from transactions.failpoints import failpoint
from transactions.ids import Tenant
from transactions.whereabouts import Whereabouts, looking

Session = AsyncSession
T = TypeVar("T")
POSTGRES_MAJOR_MIN = 15

# All of it ends with the transaction: behind a pooler the next one on the same connection is somebody else's.
_SCOPE = text(
    "select set_config('role', :role, true), set_config('surefoot.tenant', :tenant, true), "
    "set_config('idle_in_transaction_session_timeout', :idle_ms, true), "
    "current_setting('transaction_read_only') = 'on' as read_only"
)
_READ_ONLY = "began where nothing can be written"


class Database:
    """Transactions under the roles of `access`. Holds the pool; close it with `close()`.

    No session of the server is taken for one's own between transactions: with `API` a pooler may be in between.
    """

    def __init__(
        self, url: str, limits: Limits | None = None, access: Access = WORKER, *, application: str = "surefoot"
    ) -> None:
        """application: what its sessions are called at the server."""
        self.url = url
        self.limits = limits or Limits()
        self.access = access
        self._engine = _engine(url, self.limits, access, application)
        self._sessions = async_sessionmaker(self._engine, expire_on_commit=False)
        self._refused = False

    @property
    def engine(self) -> AsyncEngine:
        return self._engine

    @property
    def is_exhausted(self) -> bool:
        """Whether the last transaction waited for a connection in vain, and there is none free yet."""
        pool = cast("QueuePool", self._engine.pool)
        return self._refused and pool.checkedout() >= pool.size()

    def only_while(self, check: Callable[[], None]) -> None:
        """Ask `check` before each transaction; one that it raises for is not begun."""
        only_while(self._engine.sync_engine, check)

    @asynccontextmanager
    async def transaction(self, name: str, tenant: Tenant) -> AsyncGenerator[AsyncSession]:
        """One READ COMMITTED transaction that sees this tenant's rows. Rolled back unless the block ends well.

        `name` names the failpoints around its commit: `{name}.before_commit` and `{name}.after_commit`.
        """
        async with self._transaction(name, role=self.access.bound, tenant=tenant) as session:
            yield session

    @asynccontextmanager
    async def all_tenants(self, name: str) -> AsyncGenerator[AsyncSession]:
        """One transaction of what serves every tenant: a worker's own loops, or with `API` the administration."""
        async with self._transaction(name, role=self.access.unbound, tenant=Tenant("")) as session:
            yield session

    @asynccontextmanager
    async def as_login(self, name: str) -> AsyncGenerator[AsyncSession]:
        """One transaction under the role that logged in, for what only that may do at the server. It sees no rows."""
        async with self._transaction(name, role="none", tenant=Tenant("")) as session:
            yield session

    @asynccontextmanager
    async def removing(self, name: str) -> AsyncGenerator[AsyncSession]:
        """One transaction of the role that may delete, which sees every tenant's rows.

        Raises Forbidden for a login that may not take that role.
        """
        async with self._transaction(name, role=REMOVES, tenant=Tenant("")) as session:
            yield session

    @asynccontextmanager
    async def _transaction(self, name: str, *, role: str, tenant: Tenant) -> AsyncGenerator[AsyncSession]:
        async with self._sessions() as session:
            async with session.begin():
                idle_ms = str(int(self.limits.idle_in_transaction_s * 1000))
                try:
                    began = (await session.execute(_SCOPE, {"role": role, "tenant": tenant, "idle_ms": idle_ms})).one()
                except DBAPIError as error:
                    if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                        raise refused(role) from error
                    raise
                except PoolTimeout:
                    self._refused = True
                    raise
                self._refused = False
                session.sync_session.connection().info[_READ_ONLY] = began.read_only
                yield session
                failpoint(f"{name}.before_commit")
            failpoint(f"{name}.after_commit")

    async def query(self, tenant: Tenant, sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]:
        """Rows of one read-only statement with `:name` parameters. Raises InvalidInput for one that writes."""
        async with self.transaction("query", tenant) as session:
            return await _only_read(session, sql, parameters)

    async def query_all(self, sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]:
        """The same, of all tenants and of the engine's rows as well, where `access` is a worker's."""
        async with self.all_tenants("query") as session:
            return await _only_read(session, sql, parameters)

    def stay_at(self, here: Whereabouts, on_moved: Callable[[str], None]) -> None:
        """From now on nothing is done on a connection that finds the database elsewhere, such as on a standby.

        on_moved: called with what is different; it must not return.
        """
        look = looking(here, on_moved)

        def connected(connection: Any, _: object) -> None:
            try:
                look(connection)
            except BaseException:
                connection.close()
                raise

        event.listen(self._engine.sync_engine, "connect", connected)

    async def close(self) -> None:
        await self._engine.dispose()


def _engine(url: str, limits: Limits, access: Access, application: str) -> AsyncEngine:
    given = {**parameters(limits, application=application, options=access.options)}
    if not access.prepares:
        given["prepare_threshold"] = None
    engine = create_async_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=limits.pool_connections,
        max_overflow=0,
        pool_timeout=limits.pool_wait_s,
        isolation_level="READ COMMITTED",
        connect_args=given,
    )
    try_elsewhere(engine.sync_engine)
    return engine


def try_elsewhere(engine: sqlalchemy.Engine) -> None:
    """Have what this connection cannot do, and another one can soon, count as a connection that is lost: tried again.

    A server that takes no writes for a while (a standby, a full disk), and a statement that was prepared before a
    column was added. The engine knows neither, and would record it as what the run came to.
    """
    event.listen(engine, "handle_error", _cannot_here)


def _cannot_here(context: ExceptionContext) -> None:
    error, connection = context.original_exception, context.connection
    if isinstance(error, psycopg.errors.FeatureNotSupported):
        context.is_disconnect = error.diag.source_function == "RevalidateCachedQuery"
    elif isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        # Not where somebody has set his own transaction so, or writes through this server to another one.
        context.is_disconnect = connection is None or bool(connection.info.get(_READ_ONLY, True))
    else:
        return
    context.invalidate_pool_on_disconnect = False


async def _only_read(session: AsyncSession, sql: str, parameters: Mapping[str, object]) -> Sequence[Mapping[str, Any]]:
    await session.execute(text("set transaction read only"))
    try:
        return await fetch_all(session, text(sql), **parameters)
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
            raise
        raise InvalidInput(f"A query only reads ({error.orig}): write in a transaction.") from error


async def fetch_one(session: AsyncSession, statement: TextClause, **parameters: object) -> Mapping[str, Any] | None:
    """The only row, or None. More than one row is a defect and raises."""
    row = (await session.execute(statement, parameters)).mappings().one_or_none()
    return None if row is None else cast("Mapping[str, Any]", row)


async def fetch_all(session: AsyncSession, statement: TextClause, **parameters: object) -> Sequence[Mapping[str, Any]]:
    """All rows, in the statement's order; none for a statement that returns no rows."""
    result = cast("CursorResult[Any]", await session.execute(statement, parameters))
    return cast("Sequence[Mapping[str, Any]]", result.mappings().all() if result.returns_rows else ())


async def execute(session: AsyncSession, statement: TextClause, **parameters: object) -> None:
    """Run a statement whose rows nobody needs."""
    await session.execute(statement, parameters)


async def is_read_only(session: AsyncSession) -> bool:
    """Whether the server takes no writes from this session: a standby, or one that somebody has set so."""
    return bool((await session.execute(text("select current_setting('transaction_read_only') = 'on'"))).scalar_one())


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed later: no connection, a deadlock, a store of artifacts that is away."""
    if isinstance(error, DBAPIError) and isinstance(error.orig, psycopg.Error):
        return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return isinstance(error, PoolTimeout | psycopg.OperationalError | StoreUnavailable)


def is_forbidden(error: BaseException) -> bool:
    """Whether the database does not let this login do it, or take the role for it."""
    if isinstance(error, DBAPIError):
        return isinstance(error.orig, psycopg.errors.InsufficientPrivilege)
    return isinstance(error, Forbidden)


def is_unstorable(error: BaseException) -> bool:
    """Whether a text was given that Postgres cannot store: a NUL character, or half of a surrogate pair."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, UnicodeEncodeError | psycopg.errors.UntranslatableCharacter):
        return True
    return isinstance(cause, psycopg.DataError) and "NUL" in str(cause)


async def until_committed(body: Callable[[], Awaitable[T]], still_mine: Callable[[], None]) -> T:
    """Run a transaction again while the database is away. `still_mine` raises once this process lost its right.

    The body must be safe to repeat: a commit whose answer was lost may have happened.
    """
    pause_s = 0.05
    while True:
        still_mine()
        try:
            return await body()
        except Exception as error:
            if not is_transient(error):
                raise
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  jitter, not a secret
        pause_s = min(pause_s * 2, 2.0)


def check_server(url: str) -> int:
    """The server's major version. Raises DatabaseUnavailable with a sentence that says what to do."""
    parsed = _parse(url)
    shown = parsed.render_as_string(hide_password=True)
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(plain, connect_timeout=5, autocommit=True) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DatabaseUnavailable(
            f"The database {shown} cannot be reached ({why}): start it, correct DATABASE_URL, "
            "or unset DATABASE_URL to use the embedded one."
        ) from error
    if version // 10000 < POSTGRES_MAJOR_MIN:
        raise DatabaseUnavailable(
            f"The database {shown} is Postgres {version // 10000}, and Surefoot needs {POSTGRES_MAJOR_MIN} or newer: "
            "upgrade the server, or set DATABASE_URL to a newer one."
        )
    return version // 10000


def _parse(url: str) -> sqlalchemy.URL:
    with contextlib.suppress(ArgumentError, ValueError):
        parsed = make_url(url)
        if parsed.get_backend_name() in ("postgresql", "postgres"):
            return parsed
    raise DatabaseUnavailable(
        "DATABASE_URL is not the URL of a Postgres database: write postgresql://user:password@host:port/name, "
        "or unset it to use the embedded one."
    )


def connector(
    url: str,
    limits: Limits | None = None,
    *,
    application: str = "surefoot engine",
    role: str | None = None,
    look: Callable[[psycopg.Connection], None] | None = None,
) -> Callable[[], psycopg.Connection]:
    """How the engine opens its connections, under this role: a failure to connect says so by its SQLSTATE, 08001.

    look: asked of each, before anything is done on it.

    The engine pauses while the database is away, but knows that by the driver's words, which differ where a Unix
    socket is missing or a name does not resolve; what it does not know it records as the failure of the run.
    """
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    given = parameters(limits or Limits(), application=application, role=role)

    def connect() -> psycopg.Connection:
        try:
            connection = psycopg.connect(plain, **given)
        except psycopg.OperationalError as error:
            raise psycopg.errors.SqlclientUnableToEstablishSqlconnection(str(error)) from error
        try:
            if look is not None:
                look(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    return connect


def only_while(engine: sqlalchemy.Engine, check: Callable[[], None]) -> None:
    """Ask `check` whenever a connection of this engine is about to be used."""
    event.listen(engine, "checkout", lambda *_: check())


def sync_engine(url: str) -> sqlalchemy.Engine:
    """An engine for migrations: the login's own role, one connection at a time."""
    return sqlalchemy.create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=sqlalchemy.NullPool)
