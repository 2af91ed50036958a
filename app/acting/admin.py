"""Who may do what: tenants, principals and tokens."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from app.acting.base import Base, told_in_words
from transactions import Role, Session, Tenant, epochs, principals, tokens
from transactions.epochs import Begun
from transactions.words import check_words

EXPIRES = timedelta(days=90)


class AdminActs(Base):
    """Each needs an admin. One of tenant default, who is the deployment's, may name another `tenant`."""

    async def create_tenant(self, tenant: str) -> None:
        """Raises InvalidInput, Conflict (it exists)."""
        self._need_deployment()
        async with self._administration("tenant.create") as session:
            await principals.new_tenant(session, tenant)

    async def tenants(self) -> Sequence[Mapping[str, Any]]:
        """Every tenant of the deployment."""
        self._need_deployment()
        async with self._administration("read") as session:
            return await principals.tenants(session)

    async def set_principal(self, name: str, *, roles: Sequence[str], tenant: str | None = None) -> None:
        """Make a principal with these roles, or give it these instead of its own. Raises InvalidInput, NotFound."""
        of = self._of(tenant)
        async with self._administration("principal.set") as session:
            await principals.put(session, of, name, roles=roles, by=self.who.name)

    async def principals(self, *, tenant: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Names and roles, by name."""
        of = self._of(tenant)
        async with self._administration("read") as session:
            return await principals.page(session, of)

    async def disable_principal(self, name: str, *, tenant: str | None = None) -> None:
        """It may nothing any more, nor do its tokens, and what it approved and was not done yet does not count."""
        of = self._of(tenant)
        async with self._administration("principal.disable") as session:
            await principals.disable(session, of, name, by=self.who.name)

    async def enable_principal(self, name: str, *, tenant: str | None = None) -> None:
        of = self._of(tenant)
        async with self._administration("principal.enable") as session:
            await principals.enable(session, of, name, by=self.who.name)

    async def create_token(
        self,
        principal: str,
        *,
        scopes: Sequence[str] | None = None,
        expires: timedelta = EXPIRES,
        tenant: str | None = None,
    ) -> str:
        """A token of a principal, shown this once. scopes: what it may of the principal's roles; None: all.

        Raises NotFound, Forbidden, InvalidInput.
        """
        of = self._of(tenant)
        async with self._administration("token.create") as session:
            return await tokens.create(session, of, principal, scopes=scopes, expires=expires, by=self.who.name)

    async def tokens(self, *, tenant: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Tokens, oldest first: whose, scopes, how they stand, when last used. Never a secret."""
        of = self._of(tenant)
        async with self._administration("read") as session:
            return await tokens.page(session, of)

    async def revoke_token(self, token_id: str, *, tenant: str | None = None) -> str:
        """From now on it opens nothing. Whose it was. Raises NotFound, Conflict."""
        of = self._of(tenant)
        async with self._administration("token.revoke") as session:
            return await tokens.revoke(session, of, token_id, by=self.who.name)

    async def restored(self, *, reason: str) -> Begun:
        """Say that the database was restored from a backup: a new epoch begins. Needs an admin of tenant default.

        Workers of before lose their leases, and what may have been done since the backup is looked for before it is
        sent. Needs a login that may be a worker. Raises InvalidInput (no reason).
        """
        self._need_deployment()
        check_words(self.who.name, reason)
        async with self._as_worker("epoch.begin") as session:
            return await epochs.begin(session, why=reason, by=self.who.name)

    def _of(self, tenant: str | None) -> Tenant:
        if tenant is not None and tenant != self.tenant:
            self._need_deployment()
            return Tenant(tenant)
        return self.tenant

    @asynccontextmanager
    async def _administration(self, name: str) -> AsyncGenerator[Session]:
        """Under a role of its own: those that tools run under may neither see tokens nor change a right."""
        self.who.need(Role.ADMIN)
        async with told_in_words(), self.database.all_tenants(name) as session:
            yield session
