"""A relay with the bundled consumers, in a process that ends at a failpoint."""

import asyncio
import os

from outbox import Consumer, MailConsumer, Relay, RelaySettings, SmtpServer, WebhookConsumer
from transactions import Database, Wakeups, WorkerId
from transactions.failpoints import ARMED

SECRET = "whsec_" + "A" * 32


def consumer_of(database: Database, to: SmtpServer | str) -> Consumer:
    """Of mail for a mail server, of webhooks for a URL."""
    if isinstance(to, str):
        return WebhookConsumer(to, secret=SECRET, allow_private=True)
    return MailConsumer(to, database)


def relay_to(database: Database, to: SmtpServer | str, worker: str) -> Relay:
    """One that takes what is for `mail`."""
    return Relay(
        database,
        {"mail": consumer_of(database, to)},
        agents=(),
        worker_id=WorkerId(worker),
        wakeups=Wakeups(database.url),
        still_mine=lambda: None,
        settings=RelaySettings(lease_s=3600.0),
    )


def deliver_until(url: str, to: SmtpServer | str, worker: str, point: str) -> None:
    """Deliver what is due, and die at `point`."""
    os.environ[ARMED] = point

    async def deliver() -> None:
        await relay_to(Database(url), to, worker).run_once()

    asyncio.run(deliver())
