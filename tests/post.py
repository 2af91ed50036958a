"""A mail server on the loop of a test, whose every answer is the test's, and the letters that are sent to it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from outbox import SmtpServer
from transactions import DEFAULT_TENANT, Database, EntryId, WorkerId, outbox
from transactions.outbox import Delivery

SENDER = "surefoot@example.org"


@dataclass(frozen=True)
class Taken:
    """One message that the server took: for whom, and what its headers say."""

    recipients: tuple[str, ...]
    message_id: str
    to: str
    encrypted: bool


@dataclass  # without slots: aiosmtpd looks through its members
class PostOffice:
    """`refuses` gives, by recipient, what the next RCPTs are answered; `refuses_text` the next DATAs. Then it takes."""

    refuses: dict[str, list[str]] = field(default_factory=dict)
    refuses_text: dict[str, list[str]] = field(default_factory=dict)
    refuses_sender: list[str] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    sessions: int = 0
    port: int = 0

    def names(self) -> list[str]:
        """Whom it took a mail for, in order."""
        return [recipient.partition("@")[0] for taken in self.taken for recipient in taken.recipients]

    async def handle_MAIL(self, _: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        if self.refuses_sender:
            return self.refuses_sender.pop(0)
        envelope.mail_from = address
        return "250 ok"

    async def handle_RCPT(self, _: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        self.asked.append(address)
        if answers := self.refuses.get(address):
            return answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        for address in envelope.rcpt_tos:
            if answers := self.refuses_text.get(address):
                return answers.pop(0)
        content = envelope.content
        message = message_from_bytes(content if isinstance(content, bytes) else b"")
        encrypted = session.ssl is not None or server.transport.get_extra_info("sslcontext") is not None
        self.taken.append(Taken(tuple(envelope.rcpt_tos), message["Message-ID"], message["To"], encrypted))
        return f"250 kept as {len(self.taken)}"

    @asynccontextmanager
    async def open(self, *, tls: ssl.SSLContext | None = None, **settings: Any) -> AsyncGenerator[None]:
        """tls: from the first byte. settings: of aiosmtpd."""
        loop = asyncio.get_running_loop()

        def protocol() -> SMTP:
            self.sessions += 1
            return SMTP(self, hostname="localhost", loop=loop, **settings)

        server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    def server(self, **changes: Any) -> SmtpServer:
        return SmtpServer("127.0.0.1", self.port, SENDER, **{"timeout_s": 5.0, **changes})


def only(user: str, password: str) -> Any:
    """Lets one user in."""

    def authenticate(_: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        good = isinstance(data, LoginPassword) and data == LoginPassword(user.encode(), password.encode())
        return AuthResult(success=good, handled=good)

    return authenticate


def mail_to(*names: str) -> Mapping[str, Any]:
    return {"to": [f"{name}@example.org" for name in names], "subject": "hello", "body": "hello"}


async def post(database: Database, *names: str, entry_id: str = "letter") -> None:
    """An entry for the mail consumer, to these at example.org."""
    async with database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        await outbox.put(
            session,
            entry_id=EntryId(entry_id),
            tenant=DEFAULT_TENANT,
            run_id=None,
            action_id=None,
            topic="mail",
            payload=dict(mail_to(*names)),
            consumers=("mail",),
        )


async def claimed(database: Database, worker: str = "ada") -> Delivery:
    async with database.all_tenants("relay.claim") as session:
        [delivery] = await outbox.claim_due(
            session, consumers=["mail"], agents=[], worker_id=WorkerId(worker), lease_s=3600, limit=1
        )
    return delivery
