"""One principal in one tenant, and the door through which everything it does goes."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from steps import DurableAgent
from transactions import (
    DEFAULT_TENANT,
    UNSTORABLE,
    WORKER,
    ArtifactStore,
    Database,
    DatabaseUnavailable,
    Forbidden,
    InvalidInput,
    Principal,
    Role,
    Session,
    SurefootError,
    Tenant,
    is_transient,
    is_unstorable,
    ownership,
)
from transactions.access import require_worker
from transactions.ownership import Noun

AWAY = "The database cannot be reached right now: nothing was lost, try again in a moment."


@asynccontextmanager
async def told_in_words() -> AsyncGenerator[None]:
    """A database that is away is told in words, not as a driver's error."""
    try:
        yield
    except SurefootError:
        raise
    except Exception as error:
        if is_transient(error):
            raise DatabaseUnavailable(AWAY) from error
        if is_unstorable(error):
            raise InvalidInput(f"A text contains {UNSTORABLE}: remove it.") from error
        raise


class Base:
    """`store`: of the bytes of artifacts; `agents`: those that this process knows, by name."""

    def __init__(
        self, database: Database, store: ArtifactStore, agents: Mapping[str, DurableAgent[Any]], who: Principal
    ) -> None:
        self.database = database
        self.store = store
        self.agents = agents
        self.who = who

    @property
    def tenant(self) -> Tenant:
        return self.who.tenant

    @asynccontextmanager
    async def _transaction(
        self, name: str, needs: Role, *, noun: Noun | None = None, id: str = ""
    ) -> AsyncGenerator[Session]:
        """A transaction bound to the tenant, for who has the role. `noun`, `id`: what it is about, of this tenant."""
        self.who.need(needs)
        async with told_in_words(), self.database.transaction(name, self.tenant) as session:
            if noun is not None:
                await ownership.require(session, self.tenant, noun, id)
            yield session

    @asynccontextmanager
    async def _as_worker(self, name: str) -> AsyncGenerator[Session]:
        """A transaction of what reaches every tenant's runs and effects: this login has to be a worker's, or have both.

        The caller has asked for a role. Raises DatabaseUnavailable.
        """
        async with told_in_words():
            await require_worker(self.database.url)
            database = Database(self.database.url, self.database.limits, WORKER)
            try:
                async with database.all_tenants(name) as session:
                    yield session
            finally:
                await database.close()

    def _need_deployment(self) -> None:
        """What belongs to the deployment is an admin's of tenant default. Raises Forbidden."""
        self.who.need(Role.ADMIN)
        if self.tenant != DEFAULT_TENANT:
            raise Forbidden(f"This is the deployment's, and {self.who.name} is of tenant {self.tenant}: ask its admin.")
