"""The fences between tenants as the catalogue says they are, and as a row that tries to cross finds them."""

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from transactions import DEFAULT_TENANT, Tenant

B = Tenant("b")
ROLES = ("surefoot_app", "surefoot_worker", "surefoot_api", "surefoot_admin")
REMOVES = "surefoot_retention"  # the one role that deletes, and nothing else
# What it may: delete from, and write of: what was removed, and that an event or an object is to tell of it.
REMOVED = (
    "action_calls", "actions", "api_tokens", "approval_decisions", "approvals", "artifact_numbers", "artifacts",
    "attempts", "decisions", "events", "inbox", "model_calls", "model_messages", "outbox_deliveries", "outbox_entries",
    "outbox_keys", "receipts", "removals", "run_states", "runs", "segments", "state_migrations", "steps",
    "verifications", "waits",
    "workers", "operation_outputs", "workflow_input", "workflow_output", "workflow_status",
)  # fmt: skip
WRITES = ("artifact_numbers", "events", "removals", "retention_passes", "staged_objects")
BLINDLY = ("staged_objects",)  # of what it writes, what it does not read
SEES = (*REMOVED, *WRITES, "agents", "limits", "retention_policies", "schedules", "tenants")
ENGINE = "surefoot_worker"  # whose connection the engine has: it removes rows of its own
# What is the deployment's: rows of tenant `default`, which every tenant sees and none but it changes.
DEPLOYMENT = (
    "tenants",
    "agents",
    "workers",
    "subscriptions",
    "consumer_limits",
    "versions",
    "version_agents",
    "limits",
    "dispatch",
    "epochs",
)
SHOWN_BY = ("worker_status", "outbox_topics", "version_status")  # views of such rows
SECRET = ("api_tokens",)  # nothing that runs under surefoot_app reads it
ADMINISTRATION = ("tenants", "principals", "api_tokens")  # nor changes these
# Which an administrator of the deployment changes over the API.
ADMINISTERED = (*ADMINISTRATION, "limits", "retention_policies", "versions", "version_agents", "agents")
CLAIMED = {"actions": "IN_FLIGHT", "outbox_deliveries": "claimed"}  # which surefoot_api may not
APPEND_ONLY = ("receipts", "events", "inbox", "artifacts", "verifications", "decisions", "approval_decisions")
NEVER_UPDATED = (
    "staged_objects",
    "artifact_sweeps",
    "versions",
    "version_agents",
    "state_migrations",
    "limits",
    "dispatch",
    "queue_turns",
    "retention_policies",
    "retention_passes",
    "removals",
    "artifact_numbers",
    "epochs",
)  # by surefoot_app, which has no right to
TAKEN = "staged_objects"  # to delete its row is the right to reference an object
QUAL = "(tenant = current_setting('surefoot.tenant'::text, true))"
_SOMEBODYS = "(current_setting('surefoot.tenant'::text, true) <> ''::text)"
DEPLOYMENT_QUAL = f"((tenant = 'default'::text) AND {_SOMEBODYS})"
SHOWN = {"limits": f"(everyone AND {_SOMEBODYS})"}  # of which table other rows are

Connection = psycopg.Connection[Any]


def violations(owner: Connection) -> list[str]:
    """What is wrong, in words; nothing when all is well."""
    return [*_catalogue(owner), *_privileges(owner)] or list(crossings(owner))


def _catalogue(owner: Connection) -> Iterator[str]:
    for name, has_tenant, secured, forced in _rows(
        owner,
        "select relname, exists (select 1 from pg_attribute a where attrelid = c.oid and attname = 'tenant'),"
        " relrowsecurity, relforcerowsecurity from pg_class c"
        " where relnamespace = 'surefoot'::regnamespace and relkind in ('r', 'p')",
    ):
        if not has_tenant:
            if name != "schema_version":
                yield f"{name} has no tenant"
            continue
        if not (secured and forced):
            yield f"{name}: row-level security is {'on' if secured else 'off'}, {'forced' if forced else 'not forced'}"
        policies = _rows(
            owner,
            "select policyname, permissive, roles, cmd, qual, with_check from pg_policies"
            " where schemaname = 'surefoot' and tablename = %s order by policyname",
            name,
        )
        expected = [
            ("tenant", "PERMISSIVE", ["public"], "ALL", QUAL, None),
            ("worker", "PERMISSIVE", ["surefoot_worker"], "ALL", "true", None),
        ]
        if name in SEES:
            expected.insert(0, ("retention", "PERMISSIVE", [REMOVES], "ALL", "true", None))
        if name in DEPLOYMENT:
            expected.append(("deployment", "PERMISSIVE", ["public"], "SELECT", SHOWN.get(name, DEPLOYMENT_QUAL), None))
        if name in ADMINISTERED:
            expected.append(("admin", "PERMISSIVE", ["surefoot_admin"], "ALL", "true", None))
        if name in CLAIMED:
            check = f"(state <> '{CLAIMED[name]}'::text)"
            expected.append(("api_claims_nothing", "RESTRICTIVE", ["surefoot_api"], "UPDATE", "true", check))
        if policies != sorted(expected):
            yield f"{name}: policies {policies}"
    for name, options in _rows(
        owner,
        "select relname, reloptions from pg_class"
        " where relnamespace = 'surefoot'::regnamespace and relkind in ('v', 'm')",
    ):
        if "security_invoker=true" not in (options or []):
            yield f"view {name} shows its owner's rows"


def _privileges(owner: Connection) -> Iterator[str]:
    for role, power in _rows(
        owner,
        "select rolname, rolsuper or rolbypassrls or rolcanlogin or rolcreaterole or rolcreatedb"
        " from pg_roles where rolname = any(%s)",
        [*ROLES, REMOVES],
    ):
        if power:
            yield f"{role} may more than a role that owns nothing"
    for member, of in _rows(
        owner,
        "select m.rolname, g.rolname from pg_auth_members a join pg_roles m on m.oid = a.member"
        " join pg_roles g on g.oid = a.roleid where m.rolname = any(%s)",
        [*ROLES, REMOVES],
    ):
        yield f"{member} is a member of {of}"
    for kind, name, role in _rows(
        owner,
        "select kind, name, rolname from (select 'relation', relname, relowner from pg_class"
        " union all select 'function', proname, proowner from pg_proc"
        " union all select 'schema', nspname, nspowner from pg_namespace) o (kind, name, owner)"
        " join pg_roles r on r.oid = o.owner where rolname = any(%s)",
        [*ROLES, REMOVES],
    ):
        yield f"{role} owns {kind} {name}"
    for role in ROLES:
        for schema in ("surefoot", "dbos"):
            if _rows(owner, "select has_schema_privilege(%s, %s, 'create')", role, schema)[0][0]:
                yield f"{role} may create in {schema}"
            for name, deletes, truncates in _rows(
                owner,
                "select c.relname, has_table_privilege(%s, c.oid, 'delete'), has_table_privilege(%s, c.oid, 'truncate')"
                " from pg_class c where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p')",
                role,
                role,
                schema,
            ):
                if truncates or (deletes and name != TAKEN and (schema, role) != ("dbos", ENGINE)):
                    yield f"{role} may delete from {schema}.{name}"
        for privilege in ("insert", "update"):
            if _rows(owner, "select has_table_privilege(%s, 'surefoot.schema_version', %s)", role, privilege)[0][0]:
                yield f"{role} may {privilege} the schema's version"
        for name in APPEND_ONLY:
            if _rows(owner, "select has_any_column_privilege(%s, %s, 'update')", role, f"surefoot.{name}")[0][0]:
                yield f"{role} may update {name}, which is append-only"
    for name, kept, deletes, writes, truncates in _rows(
        owner,
        "select c.relname, has_any_column_privilege(%s, c.oid, 'select'), has_table_privilege(%s, c.oid, 'delete'),"
        " has_any_column_privilege(%s, c.oid, 'insert'),"
        " has_table_privilege(%s, c.oid, 'truncate, references, trigger')"
        " from pg_class c where c.relnamespace in ('surefoot'::regnamespace, 'dbos'::regnamespace)"
        " and c.relkind in ('r', 'p')",
        *[REMOVES] * 4,
    ):
        if (kept, deletes, writes, truncates) != (
            name in SEES and name not in BLINDLY,
            name in REMOVED,
            name in WRITES,
            False,
        ):
            yield f"{REMOVES} may something else of {name}: {kept} {deletes} {writes} {truncates}"
    for privilege, names in (("select", SECRET), ("insert", ADMINISTRATION), ("update", ADMINISTRATION)):
        for name in names:
            may = "select has_any_column_privilege('surefoot_app', %s, %s)"
            if _rows(owner, may, f"surefoot.{name}", privilege)[0][0]:
                yield f"surefoot_app may {privilege} {name}"


def crossings(owner: Connection) -> Iterator[str]:
    """Try it, as the application's role bound to the default tenant, on every table and view."""
    for name in [*tables(owner), *views(owner)]:
        if name in SECRET:
            continue
        if name not in (*DEPLOYMENT, *SHOWN_BY):
            with Acting(owner, "surefoot_app", B):
                if count(owner, name, DEFAULT_TENANT):
                    yield f"{name}: rows of the default tenant are visible to another"
        with Acting(owner, "surefoot_app", DEFAULT_TENANT):
            if count(owner, name, B):
                yield f"{name}: rows of another tenant are visible"
        with Acting(owner, "surefoot_app", Tenant("")):
            if _rows(owner, "select count(*) from {}", table=name)[0][0]:
                yield f"{name}: rows are visible without a tenant"
    for name in tables(owner):
        copies = _rows(owner, "select to_jsonb(t)::text from {} t where tenant = %s limit 1", B, table=name)
        for [copy] in copies:
            insert = "insert into {t} overriding system value select * from jsonb_populate_record(null::{t}, %s::jsonb)"
            if not _refused(owner, insert, copy, table=name):
                yield f"{name}: a row of another tenant was written"
        if name in (*APPEND_ONLY, *ADMINISTRATION, *NEVER_UPDATED):
            if not _refused(owner, "update {} set tenant = tenant", table=name):
                yield f"{name}: the application may update it"
            continue
        for tenant in (DEFAULT_TENANT, B):
            with Acting(owner, "surefoot_app", tenant):
                cursor = owner.execute(_composed("update {} set tenant = tenant", name))
                if cursor.rowcount > count(owner, name, tenant):
                    yield f"{name}: rows of another tenant were changed"
        if not _refused(owner, "update {} set tenant = %s where tenant = %s", B, DEFAULT_TENANT, table=name):
            yield f"{name}: a row was given to another tenant"


class Acting:
    """Act as a role bound to a tenant, and undo what was done."""

    def __init__(self, owner: Connection, role: str, tenant: Tenant) -> None:
        self._owner, self._role, self._tenant = owner, role, tenant

    def __enter__(self) -> None:
        self._owner.execute("savepoint acting")
        self._owner.execute("select set_config('role', %s, true)", (self._role,))
        self._owner.execute("select set_config('surefoot.tenant', %s, true)", (self._tenant,))

    def __exit__(self, *_: object) -> None:
        self._owner.execute("rollback to savepoint acting")


def _refused(owner: Connection, query: str, *parameters: object, table: str) -> bool:
    with Acting(owner, "surefoot_app", DEFAULT_TENANT):
        try:
            owner.execute(_composed(query, table), parameters)
        except psycopg.errors.InsufficientPrivilege:
            return True
        except psycopg.errors.IntegrityError:
            return False  # only a constraint stood in the way
        return False


def _composed(query: str, table: str) -> sql.Composed:
    name = sql.Identifier("surefoot", table)
    return sql.SQL(query).format(name, t=name)  # pyright: ignore[reportArgumentType]


def _rows(owner: Connection, query: str, *parameters: Any, table: str | None = None) -> list[Any]:
    return owner.execute(_composed(query, table) if table else query.encode(), parameters).fetchall()


def count(owner: Connection, name: str, tenant: Tenant) -> int:
    return _rows(owner, "select count(*) from {} where tenant = %s", tenant, table=name)[0][0]


def tables(owner: Connection) -> list[str]:
    return [
        name
        for (name,) in _rows(
            owner,
            "select relname from pg_class c where relnamespace = 'surefoot'::regnamespace and relkind in ('r', 'p')"
            " and exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant') order by 1",
        )
    ]


def views(owner: Connection) -> list[str]:
    return [
        name
        for (name,) in _rows(
            owner,
            "select relname from pg_class"
            " where relnamespace = 'surefoot'::regnamespace and relkind in ('v', 'm') order by 1",
        )
    ]
