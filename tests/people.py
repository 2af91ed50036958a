"""Two tenants, what there is of the second, and all that can be asked of it: a table of every route and method."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

import httpx
import psycopg
from psycopg.rows import dict_row
from sqlalchemy import text

from app import Surefoot
from app.acting import Acting
from tests.races.scenes import ADA, AGENT, open_scene
from transactions import (
    Database,
    EntryId,
    Role,
    Tenant,
    admitting,
    approvals,
    artifacts,
    backlog,
    desk,
    limits,
    outbox,
    ownership,
    retention,
    runs,
    schedules,
    steering,
    versions,
)
from transactions.limits import Limit
from transactions.outbox import End
from transactions.schedules import Schedule
from transactions.versions import Serves

A, B = Tenant("a"), Tenant("b")
EVERYONE = frozenset(Role)
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
APPROVERS = frozenset({Role.APPROVER})
ADMINS = frozenset({Role.ADMIN})


@dataclass(frozen=True, slots=True)
class Things:
    """One of everything that a tenant can have; `key` is the idempotency key of a run; `asking_id`: a run that asks."""

    tenant: str = "nowhere"
    run_id: str = "nope"
    asking_id: str = "nope"
    approval_id: str = "nope"
    action_id: str = "nope"
    entry_id: str = "nope"
    artifact: str = "nope"
    principal: str = "nope"
    token_id: str = "nope"
    key: str = "nope"
    queued_agent: str = "nope"
    schedule: str = "nope"

    def named(self) -> list[str]:
        """What gives it away: its runs, names and ids."""
        names = (self.run_id, self.approval_id.partition("/")[0], self.entry_id, self.artifact, self.principal)
        return [*names, self.token_id, self.queued_agent, self.schedule]


# Every route: who may, and what is sent. None: no token is asked for.
ROUTES: dict[tuple[str, str], tuple[frozenset[Role] | None, Any]] = {
    ("POST", "/runs"): (OPERATORS, {"agent": "scripted", "input": {"turns": []}}),
    ("GET", "/runs"): (EVERYONE, None),
    ("GET", "/runs/stuck"): (EVERYONE, None),
    ("GET", "/runs/{run_id}"): (EVERYONE, None),
    ("GET", "/runs/{run_id}/events"): (EVERYONE, None),
    ("POST", "/runs/{run_id}/cancel"): (OPERATORS, None),
    ("GET", "/versions"): (EVERYONE, None),
    ("POST", "/versions/current"): (OPERATORS, {"version": "scripted=1"}),
    ("POST", "/runs/move"): (OPERATORS, {"begun_by": "scripted=1"}),
    ("POST", "/runs/{run_id}/move"): (OPERATORS, None),
    ("POST", "/runs/{run_id}/hold"): (OPERATORS, {"reason": "look first"}),
    ("POST", "/runs/{run_id}/release"): (OPERATORS, None),
    ("GET", "/runs/{run_id}/undo"): (EVERYONE, None),
    ("POST", "/runs/{run_id}/undo"): (OPERATORS, None),
    ("GET", "/approvals"): (EVERYONE, None),
    ("GET", "/approvals/{approval_id}"): (EVERYONE, None),
    ("GET", "/runs/{run_id}/approvals"): (EVERYONE, None),
    ("POST", "/approvals/{approval_id}/decision"): (APPROVERS, {"decision": "approve"}),
    ("GET", "/actions"): (EVERYONE, None),
    ("GET", "/actions/{action_id}"): (EVERYONE, None),
    ("POST", "/actions/{action_id}/decision"): (OPERATORS, {"outcome": "failed", "reason": "looked"}),
    ("POST", "/actions/{action_id}/ask"): (OPERATORS, None),
    ("GET", "/outbox"): (EVERYONE, None),
    ("GET", "/outbox/{entry_id}"): (EVERYONE, None),
    ("POST", "/outbox/{entry_id}/redrive"): (OPERATORS, None),
    ("POST", "/outbox/{entry_id}/discard"): (OPERATORS, {"reason": "no"}),
    ("GET", "/artifacts"): (EVERYONE, None),
    ("GET", "/artifacts/content"): (EVERYONE, None),
    ("GET", "/artifacts/difference"): (EVERYONE, None),
    ("GET", "/queue"): (EVERYONE, None),
    ("GET", "/limits"): (EVERYONE, None),
    ("PUT", "/limits"): (ADMINS, {"tenant": "b", "running_max": 1}),
    ("DELETE", "/limits"): (ADMINS, None),
    ("GET", "/schedules"): (EVERYONE, None),
    ("PUT", "/schedules/{schedule}"): (
        OPERATORS,
        {"agent": "scripted", "input": {"turns": []}, "cron": "0 9 * * *", "time_zone": "Europe/Berlin"},
    ),
    ("POST", "/schedules/{schedule}/pause"): (OPERATORS, None),
    ("POST", "/schedules/{schedule}/resume"): (OPERATORS, None),
    ("DELETE", "/schedules/{schedule}"): (OPERATORS, None),
    ("GET", "/retention"): (EVERYONE, None),
    ("PUT", "/retention/policies"): (ADMINS, {"kind": "runs", "keep_s": 86400}),
    ("POST", "/retention/run"): (ADMINS, {"kinds": ["runs"]}),
    ("GET", "/healthz"): (None, None),
    ("GET", "/readyz"): (None, None),
}

# The deployment's: to every other tenant they are forbidden.
OF_THE_DEPLOYMENT = (("POST", "/versions/current"), ("PUT", "/limits"), ("DELETE", "/limits"))

# What is said to somebody of another tenant: that there is no such thing, only what is one's own, or that it is not
# theirs to ask.
Across = Literal["not found", "own", "forbidden"]
Call = Callable[[Acting, Things], Awaitable[object]]
# Every method of `Acting`: who may, what is said across tenants, and the call.
METHODS: Sequence[tuple[str, frozenset[Role], Across, Call]] = (
    ("start", OPERATORS, "own", lambda who, its: who.start("scripted", {"turns": []}, key=its.key)),
    ("status", EVERYONE, "not found", lambda who, its: who.status(its.run_id)),
    ("runs", EVERYONE, "own", lambda who, its: who.runs()),
    ("stuck", EVERYONE, "own", lambda who, its: who.stuck()),
    ("events", EVERYONE, "not found", lambda who, its: who.events(its.run_id)),
    ("timeline", EVERYONE, "not found", lambda who, its: who.timeline(its.run_id)),
    ("release", OPERATORS, "not found", lambda who, its: who.release(its.run_id)),
    ("cancel", OPERATORS, "not found", lambda who, its: who.cancel(its.run_id)),
    ("versions", EVERYONE, "own", lambda who, its: who.versions()),
    ("use_version", OPERATORS, "forbidden", lambda who, its: who.use_version("scripted=1")),
    ("hold", OPERATORS, "not found", lambda who, its: who.hold(its.run_id, reason="look first")),
    ("move", OPERATORS, "not found", lambda who, its: who.move(its.run_id)),
    ("move_all", OPERATORS, "own", lambda who, its: who.move_all(begun_by="scripted=1")),
    ("undoable", EVERYONE, "not found", lambda who, its: who.undoable(its.run_id)),
    ("undo", OPERATORS, "not found", lambda who, its: who.undo(its.run_id)),
    ("pending_approvals", EVERYONE, "own", lambda who, its: who.pending_approvals()),
    ("approval", EVERYONE, "not found", lambda who, its: who.approval(its.approval_id)),
    ("approvals_of", EVERYONE, "not found", lambda who, its: who.approvals_of(its.asking_id)),
    ("decide", APPROVERS, "not found", lambda who, its: who.decide(its.approval_id, "approve")),
    ("desk", EVERYONE, "own", lambda who, its: who.desk()),
    ("action", EVERYONE, "not found", lambda who, its: who.action(its.action_id)),
    ("settle", OPERATORS, "not found", lambda who, its: who.settle(its.action_id, "failed", reason="looked")),
    ("ask_again", OPERATORS, "not found", lambda who, its: who.ask_again(its.action_id)),
    ("deliveries", EVERYONE, "own", lambda who, its: who.deliveries()),
    ("entry", EVERYONE, "not found", lambda who, its: who.entry(its.entry_id)),
    ("redrive", OPERATORS, "not found", lambda who, its: who.redrive(its.entry_id)),
    ("discard", OPERATORS, "not found", lambda who, its: who.discard(its.entry_id, reason="no")),
    ("topics", OPERATORS, "own", lambda who, its: who.topics()),
    ("unsubscribe", ADMINS, "forbidden", lambda who, its: who.unsubscribe("news", "mailer")),
    ("artifact", EVERYONE, "not found", lambda who, its: who.artifact(its.artifact, 1)),
    ("open_artifact", EVERYONE, "not found", lambda who, its: who.open_artifact(its.artifact, 1)),
    ("artifacts", EVERYONE, "own", lambda who, its: who.artifacts()),
    ("artifact_difference", EVERYONE, "not found", lambda who, its: who.artifact_difference(its.artifact, 1, 1)),
    ("sweep_artifacts", ADMINS, "forbidden", lambda who, its: who.sweep_artifacts()),
    ("queue", EVERYONE, "own", lambda who, its: who.queue()),
    ("limits", EVERYONE, "own", lambda who, its: who.limits()),
    ("limits", ADMINS, "forbidden", lambda who, its: who.limits(everywhere=True)),
    ("set_limit", ADMINS, "forbidden", lambda who, its: who.set_limit(tenant=its.tenant, running_max=1)),
    ("unset_limit", ADMINS, "forbidden", lambda who, its: who.unset_limit(tenant=its.tenant)),
    ("schedules", EVERYONE, "own", lambda who, its: who.schedules()),
    (
        "set_schedule",
        OPERATORS,
        "own",
        lambda who, its: who.set_schedule("mine", "scripted", {"turns": []}, cron="0 9 * * *"),
    ),
    ("pause_schedule", OPERATORS, "not found", lambda who, its: who.pause_schedule(its.schedule)),
    ("resume_schedule", OPERATORS, "not found", lambda who, its: who.resume_schedule(its.schedule)),
    ("remove_schedule", OPERATORS, "not found", lambda who, its: who.remove_schedule(its.schedule)),
    ("retention", EVERYONE, "own", lambda who, its: who.retention()),
    ("set_retention", ADMINS, "own", lambda who, its: who.set_retention("runs", 86400)),
    ("set_retention", ADMINS, "forbidden", lambda who, its: who.set_retention("runs", 86400, tenant=its.tenant)),
    ("run_retention", ADMINS, "own", lambda who, its: who.run_retention(kinds=["runs"])),
    ("restored", ADMINS, "forbidden", lambda who, its: who.restored(reason="looked")),
    ("create_tenant", ADMINS, "forbidden", lambda who, its: who.create_tenant("new")),
    ("tenants", ADMINS, "forbidden", lambda who, its: who.tenants()),
    ("set_principal", ADMINS, "forbidden", lambda who, its: who.set_principal("x", roles=["admin"], tenant=its.tenant)),
    ("principals", ADMINS, "own", lambda who, its: who.principals()),
    ("principals", ADMINS, "forbidden", lambda who, its: who.principals(tenant=its.tenant)),
    ("disable_principal", ADMINS, "not found", lambda who, its: who.disable_principal(its.principal)),
    (
        "disable_principal",
        ADMINS,
        "forbidden",
        lambda who, its: who.disable_principal("x", tenant=its.tenant),
    ),
    ("enable_principal", ADMINS, "not found", lambda who, its: who.enable_principal(its.principal)),
    ("enable_principal", ADMINS, "forbidden", lambda who, its: who.enable_principal("x", tenant=its.tenant)),
    ("create_token", ADMINS, "not found", lambda who, its: who.create_token(its.principal)),
    ("create_token", ADMINS, "forbidden", lambda who, its: who.create_token(its.principal, tenant=its.tenant)),
    ("tokens", ADMINS, "own", lambda who, its: who.tokens()),
    ("tokens", ADMINS, "forbidden", lambda who, its: who.tokens(tenant=its.tenant)),
    ("revoke_token", ADMINS, "not found", lambda who, its: who.revoke_token(its.token_id)),
    ("revoke_token", ADMINS, "forbidden", lambda who, its: who.revoke_token(its.token_id, tenant=its.tenant)),
)


def methods() -> set[str]:
    """What `Acting` has in public, by what it inherits."""
    found = {name for base in Acting.__mro__ for name, value in vars(base).items() if callable(value)}
    return {name for name in found if not name.startswith("_")}


# Making.


def prepared(url: str) -> tuple[Things, dict[tuple[Tenant, Role], str]]:
    """What tenant B has, and a token of each role in both tenants."""

    async def make() -> tuple[Things, dict[tuple[Tenant, Role], str]]:
        surefoot = Surefoot(url, [])
        tokens: dict[tuple[Tenant, Role], str] = {}
        for tenant in (A, B):
            await surefoot.create_tenant(tenant)
            for role in (Role.ADMIN, Role.VIEWER, Role.OPERATOR, Role.APPROVER):  # the first token is an admin's
                name = f"{role}-of-{tenant}"
                await surefoot.set_principal(name, roles=[role], tenant=tenant)
                tokens[tenant, role] = await surefoot.create_token(name, tenant=tenant)
        admin = await surefoot.acting_as(f"{Role.ADMIN}-of-{B}", tenant=B)
        await admin.set_retention("messages", 86400)
        await surefoot.close()
        return await _things(url, tokens[B, Role.ADMIN].split("_")[1]), tokens

    return asyncio.run(make())


async def _things(url: str, token_id: str) -> Things:
    """A waiting approval, an unknown effect, a dead delivery and an artifact, which no worker goes on with."""
    async with open_scene(url) as scene:
        waiting = await scene.about_to_wait(["approval"], B)
        entry_id = EntryId(f"{waiting.run_id}/2/0:tell#news:0")
        async with scene.database.transaction("calls", B) as session:
            await artifacts.save(
                session,
                tenant=B,
                run_id=waiting.run_id,
                action_id=waiting.action(0),
                name="secret-report",
                content=b"bytes",
                media_type="text/plain",
            )
            await outbox.put(
                session,
                entry_id=entry_id,
                tenant=B,
                run_id=waiting.run_id,
                action_id=None,
                topic="news",
                payload={},
                consumers=("mailer",),
            )
        await scene.end(waiting.execution, waiting.ending())
        async with scene.database.all_tenants("relay.claim") as session:
            [dead] = await outbox.claim_due(
                session, consumers=["mailer"], agents=(), worker_id=ADA, lease_s=60, limit=1
            )
            assert await outbox.settle(session, [End(dead, "dead", "the address is gone")])
        unknown, action_id, _ = await scene.unknown(tenant=B)
        async with scene.database.all_tenants("announce") as session:
            serves = Serves("scripted", "1", 1, frozenset({1}), frozenset(), {}, {"waiting_s_max": 1})
            await versions.announce(session, "scripted=1", [serves])
            await versions.begin(session, "scripted=1")
        async with scene.database.transaction("schedule.set", B) as session:
            nightly = Schedule("nightly-of-b", "scripted", {"turns": []}, "0 3 * * *")
            await schedules.put(session, B, nightly, by="admin-of-b")
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            await runs.start(
                session, agent=AGENT, input={}, key=None, tenant=B, principal="admin-of-b", not_before=tomorrow
            )
        await scene.rows("update surefoot.segments set agent = 'agent-of-b' where state = 'delayed'")
        async with scene.database.all_tenants("limit.set") as session:
            await limits.put(session, Limit(B, "agent-of-b", running_max=9), by="ada")
        long_ago = "update surefoot.run_states set entered_at = entered_at - interval '30 days' where left_at is null"
        await scene.rows(long_ago)
        named = "agent = 'scripted', app_version = 'scripted=1', idempotency_key = 'key of ' || run_id"
        await scene.rows(f"update surefoot.runs set {named}")
    return Things(
        tenant=B,
        run_id=unknown.run_id,
        asking_id=waiting.run_id,
        approval_id=waiting.action(0),
        action_id=action_id,
        entry_id=entry_id,
        artifact="secret-report",
        principal="admin-of-b",
        token_id=token_id,
        key=f"key of {unknown.run_id}",
        queued_agent="agent-of-b",
        schedule="nightly-of-b",
    )


# Asking.


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def ask(api: httpx.Client, route: tuple[str, str], its: Things, headers: dict[str, str]) -> httpx.Response:
    """The route, about these things."""
    method, template = route
    ids = ("run_id", "approval_id", "action_id", "entry_id", "schedule")
    things = {name: getattr(its, name) for name in ids}
    if template.endswith("/approvals"):
        things["run_id"] = its.asking_id
    path = template.format(**{name: quote(id, safe="/:") for name, id in things.items()})
    more = {"Idempotency-Key": its.key} if route == ("POST", "/runs") else {}
    asked = {"name": its.artifact, "version": 1, "old": 1, "new": 1} if path.startswith("/artifacts/") else None
    if route == ("DELETE", "/limits"):
        asked = {"tenant": its.tenant, "agent": its.queued_agent}
    return api.request(method, path, json=ROUTES[route][1], headers={**headers, **more}, params=asked)


def dump(url: str) -> dict[str, Any]:
    """Every row of every table of ours, but for what workers say of themselves and when tokens were last used."""
    tables = "select relname from pg_class where relnamespace = 'surefoot'::regnamespace and relkind = 'r' order by 1"
    with psycopg.connect(url, row_factory=dict_row) as connection:
        names = [row["relname"] for row in connection.execute(tables) if row["relname"] not in ("workers", "dispatch")]
        rows = "select to_jsonb(t) - 'last_used_at' as row from surefoot.{} t order by to_jsonb(t)::text"
        return {
            name: [json.dumps(r["row"], sort_keys=True) for r in connection.execute(rows.format(name).encode())]
            for name in names
        }


# Breaking the mechanisms: for `broken=` of a process, and in this one under a monkeypatch.

LISTS = (
    (runs, "_RUNS", "page"),
    (runs, "_RUNS", "stuck"),
    (approvals, "_APPROVALS", "pending"),
    (desk, "_DECISIONS", "unknown"),
    (desk, "_DECISIONS", "contradictions"),
    (backlog, "_OUTBOX", "deliveries_page"),
    (steering, "_RUNS", "begun_by"),
    (artifacts, "_ARTIFACTS", "get"),
    (artifacts, "_ARTIFACTS", "page"),
    (admitting, "_QUEUE", "status"),
    (limits, "_LIMITS", "page"),
    (schedules, "_SCHEDULES", "page"),
    (retention, "_RETENTION", "policies"),
)


def the_code_asks_nothing() -> None:
    """Whose something is is not asked, and lists are of everyone."""

    async def require(*_: Any) -> None: ...

    ownership.require = require
    for module, loaded, name in LISTS:
        statements = getattr(module, loaded)
        spoilt = statements[name].text.replace("d.tenant = :tenant", "true").replace("tenant = :tenant", "true")
        assert spoilt != statements[name].text
        setattr(module, loaded, {**statements, name: text(spoilt)})


def the_rows_are_everyones() -> None:
    """Every transaction is a worker's own, which row-level security lets see all."""
    within = Database._transaction

    def any_tenants(self: Database, name: str, *, role: str, tenant: Tenant) -> Any:
        return within(self, name, role=role if role == "surefoot_admin" else "surefoot_worker", tenant=tenant)

    Database._transaction = any_tenants  # pyright: ignore[reportAttributeAccessIssue]


def nothing_is_asked() -> None:
    the_code_asks_nothing()
    the_rows_are_everyones()
