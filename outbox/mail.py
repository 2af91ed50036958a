"""The mail consumer: entries of topic `mail` go out through SMTP.

The Message-ID is made from the entry's id, so a reader (or a mail server that does) can drop a repeat. SMTP itself
cannot deduplicate: a process that dies after the server accepted a mail and before that is recorded sends it again,
unless the inbox already says it was taken. That window is between the server's answer and the next commit.
"""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

import aiosmtplib
from pydantic import BaseModel, Field, ValidationError

from outbox.relay import Delivered, Outcome, Undelivered
from transactions import InvalidInput, failpoint
from transactions.outbox import Delivery

_ADDRESS = re.compile(r"[^@\s<>,;:\"\\()\[\]\x00-\x1f]+@[^@\s<>,;:\"\\()\[\]\x00-\x1f]+")
_PERMANENT = range(500, 600)


class Mail(BaseModel):
    """Payload of topic `mail`. `to`: addresses; `subject`: one line; `body`: plain text."""

    to: list[str] = Field(min_length=1, max_length=100)
    subject: str = Field(min_length=1, max_length=500, pattern=r"^[^\r\n\x00]*$")
    body: str


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Where mail goes, from `smtp://[user:password@]host:port` or `smtps://...`; `sender` is the From address.

    timeout_s: of a whole mail, from connecting to the last answer.
    """

    host: str
    port: int
    sender: str
    tls: bool = False
    user: str | None = None
    password: str | None = None
    timeout_s: float = 20.0

    @classmethod
    def from_url(cls, url: str, *, sender: str) -> "SmtpServer":
        """Raises InvalidInput for a URL of another shape."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = None, None, None
        if parts is None or parts.scheme not in ("smtp", "smtps") or not host:
            raise InvalidInput(f"SUREFOOT_SMTP_URL={url!r}: write smtp://host:port or smtps://user:password@host:port.")
        tls = parts.scheme == "smtps"
        return cls(
            host,
            port or (465 if tls else 25),
            sender,
            tls,
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
        )


class MailConsumer:
    """Sends one mail for each entry."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server

    async def take(self, delivery: Delivery) -> Outcome:
        try:
            mail = Mail.model_validate(delivery.payload)
        except ValidationError as error:
            first = error.errors()[0]
            return Undelivered(
                f"the payload is not a mail ({first['loc']}: {first['msg']}): correct the tool", final=True
            )
        if wrong := [address for address in mail.to if not _ADDRESS.fullmatch(address)]:
            return Undelivered(f"{wrong[0]!r} is not a mail address: correct the tool", final=True)
        message_id = message_id_of(delivery.entry_id, self._server.sender)
        try:
            failpoint("mail.before_send")
            message = _message(mail, message_id, self._server.sender, delivery.created_at)
            _, answer = await self._send(message, mail.to)
            failpoint("mail.after_send")
        except TimeoutError:
            return Undelivered(f"no answer of the mail server within {self._server.timeout_s:g} s")
        except aiosmtplib.SMTPResponseException as error:
            return Undelivered(f"the mail server said {error.code} {error.message}", final=error.code in _PERMANENT)
        except aiosmtplib.SMTPRecipientsRefused as error:
            refused = error.recipients[0]
            return Undelivered(
                f"the mail server refused {refused.recipient}: {refused.code} {refused.message}",
                final=refused.code in _PERMANENT,
            )
        return Delivered({"message_id": message_id, "answer": answer})

    async def _send(self, message: EmailMessage, to: Sequence[str]) -> tuple[dict[str, aiosmtplib.SMTPResponse], str]:
        client = aiosmtplib.SMTP(
            hostname=self._server.host,
            port=self._server.port,
            username=self._server.user,
            password=self._server.password,
            use_tls=self._server.tls,
            timeout=self._server.timeout_s,
        )
        try:
            async with asyncio.timeout(self._server.timeout_s):
                await client.connect()
                return await client.send_message(message, sender=self._server.sender, recipients=list(to))
        finally:
            client.close()  # no QUIT: its answer would be waited for, and a mail that was taken given up over it


def message_id_of(entry_id: str, sender: str) -> str:
    """The Message-ID of an entry: the same at every attempt, and no secret of ours in it."""
    return f"<{hashlib.sha256(entry_id.encode()).hexdigest()[:40]}@{sender.rpartition('@')[2]}>"


def _message(mail: Mail, message_id: str, sender: str, at: datetime) -> EmailMessage:
    message = EmailMessage()
    message["From"] = sender
    message["To"] = ", ".join(mail.to)
    message["Subject"] = mail.subject
    message["Message-ID"] = message_id
    message["Date"] = format_datetime(at)
    message.set_content(mail.body)
    return message
