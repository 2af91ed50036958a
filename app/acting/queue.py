"""The queue: what waits and why, and the limits that the deployment sets."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.acting.admin import AdminActs
from transactions import Role, Tenant, admitting, limits
from transactions.limits import Limit


class QueueActs(AdminActs):
    """Limits are the deployment's: an admin of tenant default sets them, and whom they hold for sees them."""

    async def queue(self) -> Sequence[Mapping[str, Any]]:
        """How much of each agent runs, waits for its turn and is delayed, and why what waits is not admitted."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await admitting.status(session, self.tenant)

    async def limits(self, *, everywhere: bool = False) -> Sequence[Mapping[str, Any]]:
        """Those that hold for the tenant; everywhere: those of every tenant, for an admin of the deployment."""
        if everywhere:
            self._need_deployment()
            async with self._administration("read") as session:
                return await limits.page(session, None)
        async with self._transaction("read", Role.VIEWER) as session:
            return await limits.page(session, self.tenant)

    async def set_limit(
        self,
        *,
        tenant: str | None = None,
        agent: str | None = None,
        running_max: int | None = None,
        queued_max: int | None = None,
        starts_max: int | None = None,
        period_s: float | None = None,
    ) -> None:
        """Limit the runs of a tenant (None: of all tenants together) and an agent (None: of all agents).

        Instead of what was set for the same two before; see `transactions.limits.Limit`. Needs an admin of tenant
        default. Raises InvalidInput, NotFound (no such tenant).
        """
        self._need_deployment()
        of = None if tenant is None else Tenant(tenant)
        async with self._administration("limit.set") as session:
            limit = Limit(of, agent, running_max, queued_max, starts_max, period_s)
            await limits.put(session, limit, by=self.who.name)

    async def unset_limit(self, *, tenant: str | None = None, agent: str | None = None) -> None:
        """Needs an admin of tenant default. Raises NotFound."""
        self._need_deployment()
        async with self._administration("limit.unset") as session:
            await limits.unset(session, None if tenant is None else Tenant(tenant), agent, by=self.who.name)
