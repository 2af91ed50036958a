"""`Surefoot`: the public object. Agents on one database, for the application, for other principals, and over HTTP."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from fastapi import FastAPI

from app import wiring
from app.acting import Acting
from app.acting.base import told_in_words
from app.loading import unique
from app.readiness import Readiness, Standing
from app.settings import Settings
from app.web.api import build_api
from app.worker import Worker
from outbox import Subscription, unique_subscriptions
from steps import DurableAgent
from transactions import (
    API,
    DEFAULT_TENANT,
    ArtifactStore,
    Database,
    Limits,
    Principal,
    Tenant,
    Unauthenticated,
    principals,
    tokens,
)


class Surefoot(Acting):
    """Agents on one database.

        surefoot = Surefoot(database_url, agents=[report])
        app = FastAPI(lifespan=surefoot.lifespan)         # a worker in this process
        app.mount("/surefoot", surefoot.web)
        run_id = await surefoot.start("report", {"month": "2013-08"}, key="report-2013-08")

    What it does itself it does as the application, in tenant `default` and with every role, recorded as
    unauthenticated; `acting_as` and `authenticated` give the same for one principal. Once there are tokens, nobody
    unauthenticated can decide an approval. Every method may be called from any process; only `lifespan` makes this one
    a worker.
    """

    def __init__(
        self,
        database_url: str,
        agents: Sequence[DurableAgent[Any]],
        *,
        subscriptions: Sequence[Subscription] = (),
        settings: Settings | None = None,
    ) -> None:
        """subscriptions: consumers of your own; see outbox/README.md. Raises InvalidInput for two of one name."""
        self.settings = settings or Settings.from_env()
        limits = Limits().within(self.settings.lease_s)
        store = ArtifactStore.from_setting(self.settings.artifacts, database_url, API, lease_s=self.settings.lease_s)
        known = {agent.name: agent for agent in unique(agents)}
        super().__init__(Database(database_url, limits, API), store, known, principals.anyone(), self.settings.keep)
        self.database_url = database_url
        self.subscriptions: Sequence[Subscription] = unique_subscriptions(subscriptions)
        self.worker: Worker | None = None
        self._readiness = Readiness(database_url, self.settings.lease_s)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:  # noqa: ARG002  the shape FastAPI calls
        """Make this process a worker while the app runs."""
        worker = wiring.build_worker(
            self.database_url,
            [*self.agents.values()],
            self.settings,
            subscriptions=self.subscriptions,
        )
        try:
            await worker.start()
            self.worker = worker
            yield
        finally:
            await worker.stop()
            await worker.database.close()
            await self.close()

    @cached_property
    def web(self) -> FastAPI:
        """The HTTP API, to serve or to mount. It starts no worker; give `lifespan` to the app that is served."""
        return build_api(self)

    async def close(self) -> None:
        await self.store.close()
        await self.database.close()
        await self._readiness.close()

    async def ready(self) -> Standing:
        """`ready`, or why this process should get no work now. Raises DatabaseUnavailable."""
        return await self._readiness.standing(self.worker, self.database)

    # For others.

    def acting_for(self, who: Principal) -> Acting:
        """What this principal may do. Make one for each request: it keeps the roles that it was given."""
        return Acting(self.database, self.store, self.agents, who, self.keep)

    async def acting_as(self, name: str, *, tenant: str = DEFAULT_TENANT) -> Acting:
        """For an application that has made sure itself who asks. Raises NotFound, Forbidden (disabled)."""
        async with told_in_words(), self.database.transaction("read", Tenant(tenant)) as session:
            return self.acting_for(await principals.get(session, Tenant(tenant), name))

    async def authenticated(self, token: str | None) -> Acting:
        """For who shows this token; None: for anyone, while no token was ever made. Raises Unauthenticated."""
        async with told_in_words(), self.database.all_tenants("token.use") as session:
            if token is not None:
                return self.acting_for(await tokens.authenticate(session, token))
            if await principals.is_open(session):
                return self.acting_for(principals.anyone())
        raise Unauthenticated("Who asks? Give a token: `Authorization: Bearer sf_...`, or SUREFOOT_TOKEN=sf_... here.")

    async def acting_as_owner(self) -> Acting | None:
        """For who may log in as the schema's owner: an admin, and the way back when the last token is lost."""
        async with told_in_words(), self.database.all_tenants("read") as session:
            return self.acting_for(principals.owner()) if await principals.is_owner(session) else None

    async def is_open(self) -> bool:
        """Whether no token was ever made, so that everyone on this machine may do everything."""
        async with told_in_words(), self.database.transaction("read", DEFAULT_TENANT) as session:
            return await principals.is_open(session)
