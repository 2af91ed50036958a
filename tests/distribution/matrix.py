"""What each of the two logins may do to each table, and how it is found out: by trying."""

from collections.abc import Iterator, Mapping

import psycopg
from psycopg import sql

from tests.estate import Estate

# S: select, I: insert, U: update (of some column), D: delete, which a worker may for what is over. Nobody truncates.
# table: (people, who serve the API; hands, a worker)
SUREFOOT: Mapping[str, tuple[str, str]] = {
    "action_calls": ("S", "SIUD"),
    "actions": ("SIU", "SIUD"),
    "agents": ("SIU", "SIU"),
    "api_tokens": ("SIU", "SD"),
    "approval_decisions": ("SI", "SID"),
    "approvals": ("SIU", "SIUD"),
    "artifact_numbers": ("S", "SIUD"),
    "artifact_sweeps": ("S", "SIU"),
    "artifacts": ("SI", "SID"),
    "attempts": ("SIU", "SIUD"),
    "consumer_limits": ("S", "SIU"),
    "decisions": ("SI", "SID"),
    "dispatch": ("S", "SIU"),
    "epochs": ("S", "SIU"),
    "events": ("SI", "SID"),
    "inbox": ("S", "SID"),
    "limits": ("SIU", "SIU"),
    "model_calls": ("S", "SIUD"),
    "model_messages": ("S", "SIUD"),
    "outbox_deliveries": ("SIU", "SIUD"),
    "outbox_entries": ("SI", "SIUD"),
    "outbox_keys": ("SIU", "SIUD"),
    "principals": ("SIU", "S"),
    "queue_turns": ("S", "SIU"),
    "receipts": ("SI", "SID"),
    "removals": ("S", "SIUD"),
    "retention_passes": ("S", "SIU"),
    "retention_policies": ("SIU", "SIU"),
    "run_states": ("SIU", "SIUD"),
    "runs": ("SIU", "SIUD"),
    "schedules": ("SIU", "SIU"),
    "schema_version": ("S", "S"),
    "segments": ("SIU", "SIUD"),
    "staged_objects": ("SID", "SIUD"),
    "state_migrations": ("S", "SID"),
    "steps": ("S", "SIUD"),
    "subscriptions": ("SU", "SIU"),
    "tenants": ("SIU", "S"),
    "verifications": ("S", "SID"),
    "version_agents": ("S", "SIU"),
    "versions": ("SU", "SIU"),
    "waits": ("SU", "SIUD"),
    "workers": ("S", "SIUD"),
}
# Of the engine's tables: nothing but the state of workflows, and everything but the version of its schema.
ENGINE = {"workflow_status": ("S", "SIUD"), "dbos_migrations": ("", "S")}
ENGINE_OTHER = ("", "SIUD")
# Of tables of one's own, which tools write. The API reads what a call is bound to, and writes what an approver edits.
BUSINESS = ("SIU", "SIUD")
# A view shows what its reader may see.
VIEW = ("S", "S")
# What of a row the API may change. Nothing that a claim, an execution, a turn or a result of a run is made of.
CHANGED_BY_PEOPLE: Mapping[str, str] = {
    "actions": "state reason failure result settled_at updated_at attempt attempts_max attempt_deadline_at "
    "verifications_max verify_first revised_to",
    "agents": "version input_schema limits seen_at",
    "approvals": "state decided_at decided_by decided_role authenticated reason",
    "attempts": "outcome detail finished_at",
    "outbox_deliveries": "state attempts_max due_at settled_at lease_until detail",
    "outbox_keys": "last_seq",
    "run_states": "left_at",
    "runs": "state reason segment stalls event_seq updated_at ended_at asked asked_reason held_for pinned_version "
    "refused_by",
    "schedules": "agent input cron time_zone principal priority missed overlap enabled next_at last_why changed_at "
    "changed_by removed_at",
    "segments": "state outcome turns settled_at",
    "subscriptions": "ended_at ended_by",
    "tenants": "tokens_since",
    "versions": "current_since current_by",
    "waits": "state outcome reason settled_at action_id kind",
}
_TRIED = {
    "S": "select 1 from {} where false",
    "I": "insert into {} default values",
    "D": "delete from {} where false",
    "T": "truncate {}",
}


def expected(schema: str, name: str, kind: str) -> tuple[str, str]:
    """Raises KeyError for a table that nobody has thought about."""
    if kind == "v":
        return VIEW if schema == "surefoot" else ("", "SIUD")
    if schema == "scripted":
        return BUSINESS
    return SUREFOOT[name] if schema == "surefoot" else ENGINE.get(name, ENGINE_OTHER)


def relations(estate: Estate) -> list[tuple[str, str, str]]:
    """Schema, name and kind (`v`: a view) of every table and view of ours, of the engine's and of the agents'."""
    return estate.rows(
        "postgres",
        "select n.nspname, c.relname, case when c.relkind in ('v', 'm') then 'v' else 'r' end from pg_class c"
        " join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname in ('surefoot', 'dbos', 'scripted') and c.relkind in ('r', 'p', 'v', 'm') order by 1, 2",
    )


def columns(estate: Estate, schema: str, name: str) -> list[str]:
    found = estate.rows(
        "postgres",
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped"
        " and attgenerated = '' and attidentity <> 'a' order by attnum",
        f"{schema}.{name}",
    )
    return [name for (name,) in found]


def allowed(login: psycopg.Connection, schema: str, name: str, of: list[str]) -> tuple[str, frozenset[str]]:
    """The verbs that this login is not refused, and the columns that it may update."""
    table = sql.Identifier(schema, name)
    verbs = "".join(verb for verb, query in _TRIED.items() if _may(login, sql.SQL(query).format(table)))  # pyright: ignore[reportArgumentType]
    updates = frozenset(
        column
        for column in of
        if _may(login, sql.SQL("update {} set {c} = {c} where false").format(table, c=sql.Identifier(column)))
    )
    return verbs + "U" * bool(updates), updates


def _may(login: psycopg.Connection, query: sql.Composed) -> bool:
    try:
        with login.transaction(force_rollback=True):
            login.execute(query)
    except psycopg.errors.InsufficientPrivilege as error:
        return "row-level security" in str(error)  # the verb is its own, and this row is not
    except psycopg.Error:
        pass  # a constraint, or a view that is not to be written: it was not refused
    return True


def findings(estate: Estate) -> Iterator[str]:
    """Where what a login may do is not what is expected, in words."""
    with (
        psycopg.connect(estate.url("people"), autocommit=True) as people,
        psycopg.connect(estate.url("hands"), autocommit=True) as hands,
    ):
        for schema, name, kind in relations(estate):
            of = columns(estate, schema, name) if kind == "r" else []
            try:
                wanted = expected(schema, name, kind)
            except KeyError:
                yield f"{schema}.{name} is not in tests/distribution/matrix.py: say what each login may do to it"
                continue
            for who, login, verbs in (("people", people, wanted[0]), ("hands", hands, wanted[1])):
                found, updates = allowed(login, schema, name, of)
                if kind == "v":  # written through the tables below it, if at all
                    found, verbs = found[:1].strip("IDT"), verbs[:1]
                if set(found) != set(verbs):
                    yield f"{who} may {found or 'nothing'} on {schema}.{name}, expected {verbs or 'nothing'}"
                changed = updates ^ frozenset(CHANGED_BY_PEOPLE[name].split()) if name in CHANGED_BY_PEOPLE else ()
                if who == "people" and changed:
                    yield f"people may update {sorted(changed)} of {name}, or may not any more"
