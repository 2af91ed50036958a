"""Bring a database up to date: the engine's schema, ours, the roles, and what agents declare as their tables."""

import logging
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Protocol

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.access import API, WORKER
from transactions.database import check_server, sync_engine
from transactions.errors import DatabaseUnavailable
from transactions.logins import Login, let_in
from transactions.statements import run_script

_log = logging.getLogger("surefoot.migrate")
_LOCK = 7_301_995_120  # an arbitrary number of ours: one migration at a time in a database


class Tables(Protocol):
    """A SQLAlchemy `MetaData`, as an agent hands it in."""

    def create_all(self, bind: Connection, /) -> None: ...


def migrate(
    url: str,
    *,
    engine_schema: Callable[[str], None],
    tables: Sequence[Tables | str] = (),
    logins: Sequence[Login] = (),
) -> None:
    """Create or upgrade everything. `engine_schema(url)` makes the engine's own schema; `tables`: MetaData or DDL text.

    Safe to run again and from several processes at once. Raises DatabaseUnavailable, InvalidInput (a login).
    """
    check_server(url)
    engine = sync_engine(url)
    try:
        with engine.connect() as lock:
            lock.execute(text("select pg_advisory_lock(:lock)"), {"lock": _LOCK})
            lock.commit()
            engine_schema(url)
            with engine.begin() as connection:
                connection.execute(text("create schema if not exists surefoot"))
                _require_rights(connection, *WORKER.roles[:2])
            for revision in pending(url):  # each commits by itself: the lock of one is not held through the next
                with engine.begin() as connection:
                    command.upgrade(_config(connection), revision)
            with engine.begin() as connection:
                _require_rights(connection, *WORKER.roles, API.bound)
                _refuse_pickle(connection)
                for declared in tables:
                    _create(connection, declared)
                _grant_user_schemas(connection)
                for login in logins:
                    let_in(connection, login)
            lock.execute(text("select pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            lock.commit()
    except (DBAPIError, psycopg.errors.InsufficientPrivilege) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if not isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise
        raise DatabaseUnavailable(
            f"This login may not migrate ({cause.diag.message_primary}): run `surefoot migrate` once with a "
            "DATABASE_URL whose login may create schemas and roles."
        ) from error
    finally:
        engine.dispose()


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(files("transactions").joinpath("migrations")))
    config.set_main_option("path_separator", "os")
    return config


def _create(connection: Connection, declared: Tables | str) -> None:
    if isinstance(declared, str):
        run_script(connection, declared)
    else:
        declared.create_all(connection)


_WITHOUT_RIGHTS = """
select r.name from unnest(cast(:roles as text[])) r (name) left join pg_roles g on g.rolname = r.name
 where case when g.oid is null then true else not has_table_privilege(g.oid, 'surefoot.runs', 'select') end"""


def _require_rights(connection: Connection, *roles: str) -> None:
    """Roles are the cluster's, and a dump has none; restored where they are not, it lacks what they may as well."""
    if connection.scalar(text("select to_regclass('surefoot.runs')")) is None:
        return
    if without := list(connection.scalars(text(_WITHOUT_RIGHTS), {"roles": list(roles)})):
        raise DatabaseUnavailable(
            f"This database has Surefoot's tables, and not what {', '.join(without)} may, as after a dump was restored "
            "on a cluster without the roles. Run `surefoot migrate` on an empty database there, which makes them, and "
            "restore once more (app/deploy/README.md)."
        )


_PICKLE_TABLES = (
    "workflow_status",
    "operation_outputs",
    "notifications",
    "workflow_events",
    "workflow_events_history",
    "streams",
)


def _refuse_pickle(connection: Connection) -> None:
    """The engine reads what a row's `serialization` says, whatever it is configured with: so no row may say pickle."""
    for table in _PICKLE_TABLES:
        connection.execute(text(f"alter table dbos.{table} drop constraint if exists surefoot_no_pickle"))
        connection.execute(
            text(
                f"alter table dbos.{table} add constraint surefoot_no_pickle "
                "check (serialization is distinct from 'py_pickle')"
            )
        )


_GRANT_USER_SCHEMAS = """
do $$
declare s text; t regclass;
begin
    for s in select nspname from pg_namespace
             where nspname !~ '^pg_' and nspname not in ('information_schema', 'dbos', 'surefoot')
               and has_schema_privilege(nspname, 'usage') loop
        begin
            execute format('grant usage on schema %I to surefoot_app, surefoot_api', s);
            execute format('grant select, insert, update, delete on all tables in schema %I to surefoot_app', s);
            execute format('grant select on all tables in schema %I to surefoot_api', s);
            for t in select c.oid::regclass from pg_class c  -- no view: it acts as its owner
                     where c.relnamespace = s::regnamespace and c.relkind in ('r', 'p') loop
                execute format('grant insert, update on %s to surefoot_api', t);
            end loop;
            execute format('grant usage, select on all sequences in schema %I to surefoot_app, surefoot_api', s);
        exception when insufficient_privilege then
            raise notice 'schema % is not granted to surefoot_app and surefoot_api: its owner has to do it', s;
        end;
    end loop;
end $$
"""


def _grant_user_schemas(connection: Connection) -> None:
    """Business tables stay the login's; tools may read and write them. The API reads what a call is bound to, and adds
    or changes what an approver edits (`edit=`); it deletes nothing."""
    run_script(connection, _GRANT_USER_SCHEMAS)


def pending(url: str) -> Sequence[str]:
    """The revisions that `migrate` has still to apply, in their order; none when the database is ahead of this code.
    Raises DatabaseUnavailable.
    """
    check_server(url)
    engine = sync_engine(url)
    try:
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"version_table": "schema_version", "version_table_schema": "surefoot"}
            )
            scripts, current = ScriptDirectory.from_config(_config()), context.get_current_revision()
            if current is not None and current not in revisions():
                return ()  # of later code, which leaves what this code needs as it is
            found = scripts.iterate_revisions("head", current or "base")
            return [script.revision for script in reversed([*found]) if script.revision != current]
    finally:
        engine.dispose()


def revisions() -> Sequence[str]:
    """Those that this code knows, the oldest first; the last one is the one it needs."""
    return [script.revision for script in reversed([*ScriptDirectory.from_config(_config()).walk_revisions()])]


async def revision(session: AsyncSession) -> str | None:
    """The one that the database has; None: our schema is not there."""
    try:
        return (await session.execute(text("select version_num from surefoot.schema_version"))).scalar_one_or_none()
    except ProgrammingError:
        return None


def require_current(url: str) -> None:
    """Raises DatabaseUnavailable with the command to run unless the schema is current."""
    if pending(url):
        raise DatabaseUnavailable("The database schema is missing or old: run `surefoot migrate`, then start again.")
