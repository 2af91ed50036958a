"""A real SMTP sink: it accepts every message, and answers 250 only after the message is on disk.

It logs every submission and keeps one mail for each Message-ID and envelope, as mail stores do that honour it: a
message that arrives again for the same recipients is a submission and no second mail; one without a Message-ID is
always a mail of its own. Times are seconds since 1970.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from app.demo.worlds.service import announce, take_place, transaction

TABLES = (
    """create table if not exists mails (
        id integer primary key autoincrement, message_id text, sender text not null, recipients text not null,
        headers text not null, body text not null, received_at real not null, unique (message_id, recipients))""",
    """create table if not exists submissions (
        id integer primary key autoincrement, message_id text, received_at real not null)""",
)
MESSAGE_SIZE_MAX_MB = 10


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail that was kept: `sender` and `recipients` from the envelope, the rest from the message.

    `headers` has each header in order, `body` the plain text with
    plain newlines; `message_id` is None when the message had none.
    """

    id: int
    message_id: str | None
    sender: str
    recipients: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    body: str
    received_at: float

    @property
    def subject(self) -> str:
        return next((value for name, value in self.headers if name.lower() == "subject"), "")


@dataclass(frozen=True, slots=True)
class Submission:
    """One message that was accepted, whether it became a mail or repeated one."""

    id: int
    message_id: str | None
    received_at: float


def submissions(file: Path) -> list[Submission]:
    """Every message that the mailbox whose file this is has accepted, oldest first."""
    with transaction(file) as connection:
        rows = connection.execute("select * from submissions order by id").fetchall()
    return [Submission(**dict(row)) for row in rows]


def mails(file: Path) -> list[Mail]:
    """The mails that the mailbox whose file this is has kept, oldest first: one for each Message-ID and envelope."""
    with transaction(file) as connection:
        rows = connection.execute("select * from mails order by id").fetchall()
    return [
        Mail(
            id=row["id"],
            message_id=row["message_id"],
            sender=row["sender"],
            recipients=tuple(json.loads(row["recipients"])),
            headers=tuple((name, value) for name, value in json.loads(row["headers"])),
            body=row["body"],
            received_at=row["received_at"],
        )
        for row in rows
    ]


@dataclass(frozen=True)  # without slots: aiosmtpd looks through its members, which Python 3.11.2 does not survive with
class Sink:
    """Handles what aiosmtpd has received, by the names it looks for."""

    file: Path

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        await asyncio.to_thread(_keep, self.file, envelope)
        return "250 kept"


def _keep(file: Path, envelope: Envelope) -> None:
    raw = envelope.content or b""
    message = message_from_bytes(raw if isinstance(raw, bytes) else raw.encode(), policy=default)
    message_id = None if message["Message-ID"] is None else str(message["Message-ID"]).strip()
    received_at = time.time()
    headers = [(name, str(value)) for name, value in message.items()]
    with transaction(file, create=True) as connection:
        connection.execute("insert into submissions (message_id, received_at) values (?, ?)", (message_id, received_at))
        connection.execute(
            "insert into mails (message_id, sender, recipients, headers, body, received_at) values (?, ?, ?, ?, ?, ?)"
            " on conflict do nothing",
            (
                message_id,
                envelope.mail_from or "",
                json.dumps(envelope.rcpt_tos),
                json.dumps(headers),
                _plain_text(message),
                received_at,
            ),
        )


def _plain_text(message: EmailMessage) -> str:
    part = message.get_body(("plain", "html"))
    if part is None:
        return ""
    try:
        return str(part.get_content()).replace("\r\n", "\n")
    except (LookupError, ValueError):  # a charset nobody knows
        payload = part.get_payload(decode=True)
        return payload.decode(errors="replace") if isinstance(payload, bytes) else ""


async def serve() -> None:
    place = take_place("mailbox")
    with transaction(place.file, create=True) as connection:
        for table in TABLES:
            connection.execute(table)
    loop = asyncio.get_running_loop()
    sink = Sink(place.file)

    def protocol() -> SMTP:
        return SMTP(
            sink, data_size_limit=MESSAGE_SIZE_MAX_MB * 1_000_000, enable_SMTPUTF8=True, hostname="localhost", loop=loop
        )

    server = await loop.create_server(protocol, sock=place.listener)
    announce(place, "smtp")
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
