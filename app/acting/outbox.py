"""The outbox: what is not delivered, and what a person may do about it."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.acting.base import Base
from transactions import EntryId, Role, backlog, subscriptions
from transactions.backlog import Standing


class OutboxActs(Base):
    async def deliveries(
        self, *, standing: Standing | None = None, topic: str | None = None, limit: int = 100
    ) -> Sequence[Mapping[str, Any]]:
        """What is not delivered, oldest first: why, since when, and what to do. `standing`: only such ones."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await backlog.page(session, self.tenant, standing=standing, topic=topic, limit=limit)

    async def entry(self, entry_id: str) -> Mapping[str, Any]:
        """An entry of the outbox with its `deliveries`. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="entry", id=entry_id) as session:
            return await backlog.entry(session, EntryId(entry_id))

    async def redrive(self, entry_id: str, *, consumer: str | None = None) -> Sequence[str]:
        """Have what is dead of an entry delivered again, from now and with fresh attempts. To which consumers.

        Needs an operator. Raises NotFound, Conflict (nothing of it is dead, or it is an effect), InvalidInput.
        """
        async with self._transaction("outbox.redrive", Role.OPERATOR, noun="entry", id=entry_id) as session:
            return await backlog.redrive(session, EntryId(entry_id), consumer=consumer, by=self.who.name)

    async def discard(self, entry_id: str, *, reason: str, consumer: str | None = None) -> Sequence[str]:
        """Give a dead delivery up for good, or a pending one that is named: the next of its key goes. Which consumers'.

        Needs an operator. Raises NotFound, Conflict, InvalidInput (no reason).
        """
        async with self._transaction("outbox.discard", Role.OPERATOR, noun="entry", id=entry_id) as session:
            return await backlog.discard(session, EntryId(entry_id), consumer=consumer, reason=reason, by=self.who.name)

    async def topics(self) -> Sequence[Mapping[str, Any]]:
        """Who is subscribed to what, within which limits, and whether a live worker has it: of the whole deployment."""
        async with self._transaction("read", Role.OPERATOR) as session:
            return await subscriptions.page(session)

    async def unsubscribe(self, topic: str, consumer: str) -> None:
        """No further entry of this topic goes to this consumer; what was put before stays.

        For a consumer that is gone for good: a worker that has it subscribes it again when it starts. Needs an admin
        of tenant default, for it is the deployment's. Raises NotFound, InvalidInput.
        """
        self._need_deployment()
        async with self._transaction("outbox.unsubscribe", Role.ADMIN) as session:
            await subscriptions.end(session, topic, consumer, by=self.who.name)
