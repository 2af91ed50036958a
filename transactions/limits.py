"""How much of a tenant, of an agent or of both may run, wait and start: rows, which hold from their commit on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import InvalidInput, NotFound
from transactions.ids import DEFAULT_TENANT, Tenant
from transactions.principals import require_tenant
from transactions.statements import load

_LIMITS = load("limits")
_RUNS_MAX = 1_000_000
_STARTS_MAX = 10_000
_PERIOD_S_MIN, _PERIOD_S_MAX = 0.1, 86_400.0
_AGENT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Limit:
    """Of the runs of a tenant (None: of all tenants together) and an agent (None: of all agents). None: without bound.

    running_max: segments at once; a run that waits is none. 0 has none begin. queued_max: runs that wait to begin,
    those that are delayed too; one more is refused. starts_max: runs that begin within any `period_s`.
    """

    tenant: Tenant | None
    agent: str | None = None
    running_max: int | None = None
    queued_max: int | None = None
    starts_max: int | None = None
    period_s: float | None = None


async def put(session: AsyncSession, limit: Limit, *, by: str) -> None:
    """Instead of what held for the same tenant and agent before. What runs already is left alone and counted.

    Raises InvalidInput, NotFound (no such tenant).
    """
    _check(limit)
    if limit.tenant is not None:
        await require_tenant(session, limit.tenant)
    await execute(
        session,
        _LIMITS["set"],
        **_key(limit.tenant, limit.agent),
        running_max=limit.running_max,
        queued_max=limit.queued_max,
        starts_max=limit.starts_max,
        period_s=limit.period_s,
        by=by,
    )


async def unset(session: AsyncSession, tenant: Tenant | None, agent: str | None, *, by: str) -> None:
    """Raises NotFound."""
    if await fetch_one(session, _LIMITS["unset"], **_key(tenant, agent), by=by) is None:
        raise NotFound("There is no such limit: see `surefoot limits list`.")


async def page(session: AsyncSession, tenant: Tenant | None) -> Sequence[Mapping[str, Any]]:
    """Those that hold for a tenant, those of all tenants last; None: all there are.

    `of_tenant` and `agent` (null: all), `running_max`, `queued_max`, `starts_max`, `period_s`, `changed_at` and
    `changed_by`.
    """
    return await fetch_all(session, _LIMITS["page"], tenant=tenant)


def _key(tenant: Tenant | None, agent: str | None) -> dict[str, Any]:
    return {"tenant": tenant or DEFAULT_TENANT, "everyone": tenant is None, "agent": agent or ""}


def _check(limit: Limit) -> None:
    given = {"running_max": limit.running_max, "queued_max": limit.queued_max, "starts_max": limit.starts_max}
    if all(value is None for value in given.values()):
        raise InvalidInput("Say what the limit is: running_max, queued_max, or starts_max with period_s.")
    for name, value in given.items():
        low, high = (1, _STARTS_MAX) if name == "starts_max" else (0, _RUNS_MAX)
        if value is not None and not low <= value <= high:
            raise InvalidInput(f"{name} is from {low} to {high}, and this is {value}: correct it.")
    if (limit.starts_max is None) != (limit.period_s is None):
        raise InvalidInput("starts_max and period_s belong together: so many starts in so many seconds. Give both.")
    if limit.period_s is not None and not _PERIOD_S_MIN <= limit.period_s <= _PERIOD_S_MAX:
        raise InvalidInput(f"period_s is from {_PERIOD_S_MIN:g} to {_PERIOD_S_MAX:g} seconds: correct it.")
    if limit.agent is not None and not 1 <= len(limit.agent) <= _AGENT_CHARACTERS_MAX:
        raise InvalidInput(f"An agent's name has 1 to {_AGENT_CHARACTERS_MAX} characters: correct it.")
