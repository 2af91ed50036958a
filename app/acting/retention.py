"""How long what is kept, what was removed, and removing it now."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from app.acting.base import Base, told_in_words
from app.retention import KINDS, Removed, Retention
from transactions import DEFAULT_TENANT, Forbidden, InvalidInput, Role, Tenant, is_forbidden, retention
from transactions.access import NO_RIGHT
from transactions.retention import POLICY_KINDS, Kind

_REST = 0.5  # somebody waits for it


@dataclass(frozen=True, slots=True)
class Kept:
    """`keep`: the deployment's settings, in seconds; `policies`: what the tenant has said instead; `removed`: what was
    removed of its own in the last 30 days.

    Of the deployment, for its admin alone: `passes`, when the workers last went through each kind, and `sizes` of
    tables.
    """

    keep: Mapping[str, float]
    policies: Sequence[Mapping[str, Any]]
    removed: Sequence[Mapping[str, Any]]
    passes: Sequence[Mapping[str, Any]] = ()
    sizes: Sequence[Mapping[str, Any]] = ()


class RetentionActs(Base):
    async def retention(self) -> Kept:
        """How long what is kept, and what was removed."""
        async with self._transaction("read", Role.VIEWER) as session:
            said = await retention.policies(session, self.tenant)
            removed = await retention.told(session, self.tenant)
            if self.tenant != DEFAULT_TENANT or not self.who.may(Role.ADMIN):
                return Kept(asdict(self.keep), said, removed)
            passes, sizes = await retention.passes(session), await retention.sizes(session)
            return Kept(asdict(self.keep), said, removed, passes, sizes)

    async def set_retention(
        self, kind: str, keep_s: float | None, *, agent: str | None = None, tenant: str | None = None
    ) -> None:
        """How long the tenant keeps it, of all its agents or of one: seconds, math.inf, or None: as the setting says.

        Needs an admin. One of tenant default may name another `tenant`. Raises InvalidInput, NotFound.
        """
        self.who.need(Role.ADMIN)
        if tenant is not None and tenant != self.tenant:
            self._need_deployment()
        of = Tenant(tenant or self.tenant)
        async with told_in_words(), self.database.all_tenants("retention.set") as session:
            await retention.set_policy(session, of, kind, agent=agent, keep_s=keep_s, by=self.who.name)

    async def run_retention(
        self, *, kinds: Sequence[str] | None = None, dry_run: bool = False, seconds_max: float | None = None
    ) -> Sequence[Removed]:
        """Remove now what is old enough, as workers do, of the own tenant; an admin of tenant default does so for
        all.

        dry_run: only say what would go. seconds_max: come to an end then, and say so (`more`). Raises InvalidInput,
        Forbidden, also where this process's login may not remove: one of the API alone may not.
        """
        self.who.need(Role.ADMIN)
        own = None if self.tenant == DEFAULT_TENANT else self.tenant
        until = None if seconds_max is None else asyncio.get_running_loop().time() + seconds_max
        chosen = _chosen(kinds, of_tenant=own is not None)
        loop = Retention(self.database, self.keep, lambda: None, rest=_REST)
        async with _with_the_right(), told_in_words():
            if not dry_run:  # who had it done is told, also when there is nothing to do
                async with self.database.removing("retention.asked") as session:
                    for kind in chosen:
                        await retention.tell(session, self.tenant, kind, by=self.who.name, items=0, rows=0)
            return [
                await loop.go_through(kind, by=self.who.name, dry=dry_run, tenant=own, until=until) for kind in chosen
            ]


def _chosen(kinds: Sequence[str] | None, *, of_tenant: bool) -> Sequence[Kind]:
    allowed: Sequence[Kind] = [kind for kind in KINDS if not of_tenant or kind in POLICY_KINDS]
    if wrong := [kind for kind in kinds or () if kind not in allowed]:
        raise InvalidInput(f"Nothing is removed of {wrong[0]!r}: choose of: {', '.join(allowed)}.")
    chosen = frozenset[str](allowed if kinds is None else kinds)
    return [kind for kind in allowed if kind in chosen]


@asynccontextmanager
async def _with_the_right() -> AsyncGenerator[None]:
    try:
        yield
    except Exception as error:
        if is_forbidden(error):
            raise Forbidden(NO_RIGHT) from error
        raise
