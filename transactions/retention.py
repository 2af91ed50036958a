"""What is kept for how long: the deployment's settings, what a tenant says of its own, and what has been removed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import InvalidInput, NotFound
from transactions.ids import Tenant
from transactions.statements import load
from transactions.words import check_words

_RETENTION = load("retention")
_PRINCIPALS = load("principals")
FOREVER = math.inf
KEEP_S_MAX = 100 * 365.25 * 24 * 3600
_DAY_S = 24 * 3600.0
_TOLD_DAYS = 30
_NAME_CHARACTERS_MAX = 200

# What a tenant may say an age for. `keys` removes nothing: it is how long a run stays for the sake of its keys.
PolicyKind = Literal["messages", "events", "outbox", "artifacts", "runs", "keys"]
POLICY_KINDS: tuple[PolicyKind, ...] = get_args(PolicyKind)
# What is gone through; the last six grow slowly.
Kind = Literal[
    "engine", "messages", "events", "outbox", "artifacts", "runs",
    "orphans", "counters", "numbers", "workers", "tokens", "records",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Keep:
    """How long what is kept, in seconds, FOREVER by default but for what is of no use to anybody.

    engine: the engine's rows of a segment, after it has settled. Of a run, after its end: messages (the model's),
    events (and steps), outbox (entries that were delivered or discarded), runs (all of it). artifacts: versions that a
    later one has replaced and nothing refers to, after they were saved. keys: business keys and idempotency keys; their
    runs stay as long. workers: rows of those that have ended. tokens: those that are revoked or have expired.
    """

    engine: float = _DAY_S
    messages: float = FOREVER
    events: float = FOREVER
    outbox: float = FOREVER
    artifacts: float = FOREVER
    runs: float = FOREVER
    keys: float = FOREVER
    workers: float = 7 * _DAY_S
    tokens: float = 365 * _DAY_S


@dataclass(frozen=True, slots=True)
class Group:
    """Whose rows go at the same age. agent '': what belongs to no run."""

    tenant: Tenant
    agent: str
    keep_s: float


async def groups(session: AsyncSession, kind: PolicyKind, *, default_s: float, tenant: Tenant | None) -> list[Group]:
    """Those of a kind that have something which is older than they keep it: of a tenant, or of all."""
    rows = await fetch_all(session, _RETENTION["groups"], kind=kind, default_s=default_s, tenant=tenant)
    return [Group(Tenant(row["tenant"]), row["agent"], row["keep_s"]) for row in rows]


async def set_policy(
    session: AsyncSession, tenant: Tenant, kind: str, *, agent: str | None, keep_s: float | None, by: str
) -> None:
    """How long the tenant keeps it, of all its agents or of one; keep_s FOREVER, or None: as the setting says.

    Raises InvalidInput, NotFound (the tenant).
    """
    check_words(by, None)
    if kind not in POLICY_KINDS:
        raise InvalidInput(f"There is no policy for {kind!r}: choose one of: {', '.join(POLICY_KINDS)}.")
    if agent is not None and not 1 <= len(agent) <= _NAME_CHARACTERS_MAX:
        raise InvalidInput(f"An agent's name has 1 to {_NAME_CHARACTERS_MAX} characters: see `surefoot doctor`.")
    if keep_s is not None and keep_s != FOREVER and not 1 <= keep_s <= KEEP_S_MAX:
        raise InvalidInput(f"{keep_s:g} s is no age to keep to: give 1 to {KEEP_S_MAX:.0f} seconds, or for ever.")
    if await fetch_one(session, _PRINCIPALS["tenant"], tenant=tenant) is None:
        raise NotFound(f"No tenant {tenant!r}: see `surefoot tenants list`.")
    await execute(session, _RETENTION["set_policy"], tenant=tenant, kind=kind, agent=agent or "", keep_s=keep_s, by=by)


async def policies(session: AsyncSession, tenant: Tenant) -> Sequence[Mapping[str, Any]]:
    """What a tenant has said: `kind`, `agent` ('' for all), `keep_s`, `changed_at`, `changed_by`."""
    return await fetch_all(session, _RETENTION["policies"], tenant=tenant)


async def told(session: AsyncSession, tenant: Tenant, *, days: int = _TOLD_DAYS) -> Sequence[Mapping[str, Any]]:
    """What was removed of a tenant's in the last days: `day`, `kind`, `by`, `items`, `rows`, `last_at`."""
    return await fetch_all(session, _RETENTION["told"], tenant=tenant, days=days)


async def passes(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """When the workers have last gone through each `kind`: `begun_at`."""
    return await fetch_all(session, _RETENTION["passes"])


async def sizes(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """Every table here and of the engine, the largest first: `name`, `table_bytes`, `index_bytes`, `rows` (about)."""
    return await fetch_all(session, _RETENTION["sizes"])


async def begin_pass_if_due(session: AsyncSession, kind: Kind, *, every_s: float) -> bool:
    """Whether no worker has gone through this kind, or gone on with it, for so long; then this one does."""
    return await fetch_one(session, _RETENTION["begin_pass_if_due"], kind=kind, every_s=every_s) is not None


async def go_on(session: AsyncSession, kind: Kind, *, rest_s: float) -> None:
    """A pass goes on with this kind: one more batch was done, and another follows after so long."""
    await execute(session, _RETENTION["go_on"], kind=kind, rest_s=rest_s)


async def try_lock(session: AsyncSession) -> bool:
    """Whether this transaction is the one that removes, in all of the deployment, until it ends."""
    row = await fetch_one(session, _RETENTION["try_lock_all"])
    return row is not None and bool(row["mine"])


async def tell(session: AsyncSession, tenant: Tenant, kind: Kind, *, by: str, items: int, rows: int) -> None:
    """Count what was removed, in the commit that removes it."""
    await execute(session, _RETENTION["tell"], tenant=tenant, kind=kind, by=by, items=items, rows=rows)
