"""The local consumer: what it writes to this database commits with the word that it took the entry."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from outbox.outcomes import Delivered, Outcome, Settled, Undelivered
from transactions import Database, InvalidInput, Session, outbox
from transactions.outbox import Delivery

Body = Callable[[Session, Delivery], Awaitable[Undelivered | None]]


class _TakenBack(Exception):
    """Rolls the transaction back, with what the body answered."""

    def __init__(self, outcome: Undelivered) -> None:
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class LocalConsumer:
    """Runs `body(session, delivery)` in one transaction with the inbox row and the acknowledgement.

    So its writes happen once for an entry, however often that is delivered, and wherever a process dies. `session` is a
    SQLAlchemy AsyncSession bound to the entry's tenant. The body may run again after an error, and so does nothing
    outside this transaction; it has 8 s. What it raises, and an `Undelivered` that it returns, rolls
    everything back. The worker puts in its own `database`.
    """

    body: Body
    database: Database | None = None

    def on(self, database: Database) -> "LocalConsumer":
        """The same, on this database unless it has one."""
        return self if self.database is not None else replace(self, database=database)

    async def take(self, delivery: Delivery) -> Outcome:
        """Raises InvalidInput without a database, and what the body raises."""
        if self.database is None:
            raise InvalidInput("This consumer has no database: let a worker have it, or write LocalConsumer(body, db).")
        limit_s = self.database.limits.transaction_s
        try:
            async with self.database.transaction("consumer.take", delivery.tenant) as session:
                if not await outbox.take_into_inbox(session, delivery):
                    return Delivered(detail="taken before")
                async with asyncio.timeout(limit_s):
                    refused = await self.body(session, delivery)
                if refused is not None:
                    raise _TakenBack(refused)
                await outbox.acknowledge(session, delivery, receipt=None)
        except _TakenBack as taken_back:
            return taken_back.outcome
        except TimeoutError:
            return Undelivered(f"it took over {limit_s:g} s and was rolled back: do slow work in a remote consumer")
        return Settled(delivered=True)
