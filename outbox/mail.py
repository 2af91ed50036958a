"""The mail consumer: entries of topic `mail` go out through SMTP, to each recipient in an envelope of its own.

Every acceptance and every refusal for good is a commit of its own before the next recipient's turn, so a delivery that
comes again goes only to those who are not settled. The Message-ID is made from the entry's id, so a reader (or a mail
server that does) can drop a repeat. SMTP itself cannot deduplicate: what is left is the window between the server's
answer for one recipient and the commit that follows it.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime

import aiosmtplib
from pydantic import BaseModel, Field, JsonValue, ValidationError

from outbox.outcomes import Delivered, Outcome, Undelivered
from outbox.smtp import SmtpServer, said, session_trouble
from transactions import Database, InvalidInput, failpoint, until_committed
from transactions.inbox import parts_taken, take_part
from transactions.outbox import DELIVERY_ATTEMPTS_MAX, Delivery

_ADDRESS = re.compile(r"[^@\s<>,;:\"\\()\[\]\x00-\x1f]+@[^@\s<>,;:\"\\()\[\]\x00-\x1f]+")
_ADDRESS_CHARS_MAX = 320
_PERMANENT = range(500, 600)
_NAMES_CHARS_MAX = 600


class Mail(BaseModel):
    """Payload of topic `mail`. `to`: addresses; `subject`: one line; `body`: plain text."""

    to: list[str] = Field(min_length=1, max_length=100)
    subject: str = Field(min_length=1, max_length=500, pattern=r"^[^\r\n\x00]*$")
    body: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the mail server said of one recipient. `later`: it may say something else another time."""

    text: str
    accepted: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True)
class _Letter:
    """One entry on its way: to each of `to`, in this order, the same message."""

    delivery: Delivery
    message: EmailMessage
    message_id: str
    to: Sequence[str]


class MailConsumer:
    """Sends one mail for each entry and recipient; what became of each recipient is kept in the database's inbox.

    The worker puts in its own `database`.
    """

    def __init__(self, server: SmtpServer, database: Database | None = None) -> None:
        self._server = server
        self._on = database

    def on(self, database: Database) -> "MailConsumer":
        """The same, on this database unless it has one."""
        return self if self._on is not None else MailConsumer(self._server, database)

    @property
    def _database(self) -> Database:
        if self._on is None:
            raise InvalidInput(
                "This consumer has no database: let a worker have it, or write MailConsumer(server, db)."
            )
        return self._on

    async def take(self, delivery: Delivery) -> Outcome:
        letter = _letter(delivery, self._server.sender)
        if isinstance(letter, Undelivered):
            return letter
        answers = dict(await self._settled(letter))
        trouble = None
        if answers.keys() < set(letter.to):
            trouble = await self._session(letter, answers)
        return _outcome(letter, answers, trouble)

    async def _session(self, letter: _Letter, answers: dict[str, _Answer]) -> Undelivered | None:
        """Mail everybody who has no answer yet, in one session. What ended it before everybody had one, or None."""
        client = self._server.client()
        clock = asyncio.get_running_loop().time
        begins_none_at = ends_at = clock() + self._server.timeout_s
        try:
            async with asyncio.timeout_at(ends_at):
                await client.connect()
            for address in letter.to:
                if address in answers:
                    continue
                if clock() >= begins_none_at:
                    return Undelivered(f"the mail server took over {self._server.timeout_s:g} s: the rest comes later")
                async with asyncio.timeout_at(ends_at):
                    answer = await self._send(client, letter, address)
                answers[address] = answer
                if not answer.later:  # another worker may have settled some meanwhile: it stays with that
                    answers |= await self._record(letter, address, answer)
                ends_at = clock() + self._server.timeout_s  # the commit may have waited for its database
        except TimeoutError:
            return Undelivered(f"no answer of the mail server within {self._server.timeout_s:g} s")
        except (aiosmtplib.SMTPException, OSError) as error:
            return session_trouble(error, self._server)
        finally:
            client.close()  # no QUIT: its answer would be waited for, and a mail that was taken given up over it
        return None

    async def _send(self, client: aiosmtplib.SMTP, letter: _Letter, address: str) -> _Answer:
        """Raises what concerns the session and not this recipient alone."""
        failpoint("mail.before_send")
        try:
            _, text = await client.send_message(letter.message, sender=self._server.sender, recipients=[address])
        except aiosmtplib.SMTPRecipientsRefused as error:
            refused = error.recipients[0]
            return self._refusal(refused.code, refused.message)
        except aiosmtplib.SMTPDataError as error:
            return self._refusal(error.code, error.message)
        except aiosmtplib.SMTPNotSupported as error:  # an address that is not ASCII, for a server that needs that
            return _Answer(error.message)
        failpoint("mail.after_send")
        return _Answer(self._server.redacted(text), accepted=True)

    def _refusal(self, code: int, text: str) -> _Answer:
        return _Answer(said(code, text, self._server), later=code not in _PERMANENT)

    async def _settled(self, letter: _Letter) -> Mapping[str, _Answer]:
        async with self._database.transaction("mail.look", letter.delivery.tenant) as session:
            kept = await parts_taken(session, letter.delivery, _parts(letter))
        return _answers(letter, kept)

    async def _record(self, letter: _Letter, address: str, answer: _Answer) -> Mapping[str, _Answer]:
        """Commit what became of one recipient: a fact, so it waits for a database that is away. Who is settled now."""
        delivery = letter.delivery
        part = address if answer.accepted else _refused(delivery, address)

        async def commit() -> Mapping[str, _Answer]:
            async with self._database.transaction("mail.settle", delivery.tenant) as session:
                await take_part(session, delivery, part, result={"answer": answer.text, "attempt": delivery.attempt})
                return _answers(letter, await parts_taken(session, delivery, _parts(letter)))

        return await until_committed(commit, lambda: None)


def message_id_of(entry_id: str, sender: str) -> str:
    """The Message-ID of an entry: the same at every attempt, and no secret of ours in it."""
    return f"<{hashlib.sha256(entry_id.encode()).hexdigest()[:40]}@{sender.rpartition('@')[2]}>"


def _letter(delivery: Delivery, sender: str) -> _Letter | Undelivered:
    try:
        mail = Mail.model_validate(delivery.payload)
    except ValidationError as error:
        first = error.errors()[0]
        return Undelivered(f"the payload is not a mail ({first['loc']}: {first['msg']}): correct the tool", final=True)
    wrong = [address for address in mail.to if not _ADDRESS.fullmatch(address) or len(address) > _ADDRESS_CHARS_MAX]
    if wrong:
        return Undelivered(f"{wrong[0][:100]!r} is not a mail address: correct the tool", final=True)
    message_id = message_id_of(delivery.entry_id, sender)
    message = _message(mail, message_id, sender, delivery.created_at)
    return _Letter(delivery, message, message_id, list(dict.fromkeys(mail.to)))


def _message(mail: Mail, message_id: str, sender: str, at: datetime) -> EmailMessage:
    message = EmailMessage()
    message["From"] = sender
    message["To"] = ", ".join(mail.to)
    message["Subject"] = mail.subject
    message["Message-ID"] = message_id
    message["Date"] = format_datetime(at)
    message.set_content(mail.body)
    return message


def _refused(delivery: Delivery, address: str) -> str:
    """A refusal holds until a person has the entry delivered again, which gives it another limit of attempts."""
    return f"{address} refused before {delivery.attempts_max}"


def _parts(letter: _Letter) -> Sequence[str]:
    return [*letter.to, *(_refused(letter.delivery, address) for address in letter.to)]


def _answers(letter: _Letter, kept: Mapping[str, object]) -> Mapping[str, _Answer]:
    """What the inbox says of the recipients: who has the mail, and who was refused since a person last saw to it."""
    delivery = letter.delivery
    answers: dict[str, _Answer] = {}
    for address in letter.to:
        match kept.get(_refused(delivery, address)):
            case {"answer": str(text), "attempt": int(at)} if at > delivery.attempts_max - DELIVERY_ATTEMPTS_MAX:
                answers[address] = _Answer(text)
            case _:
                pass
        match kept.get(address):
            case {"answer": str(text)}:
                answers[address] = _Answer(text, accepted=True)
            case _:
                pass
    return answers


def _outcome(letter: _Letter, answers: Mapping[str, _Answer], trouble: Undelivered | None) -> Outcome:
    taken = [address for address in letter.to if address in answers and answers[address].accepted]
    if len(taken) == len(letter.to):
        receipts: dict[str, JsonValue] = {address: answers[address].text for address in letter.to}
        return Delivered({"message_id": letter.message_id, "recipients": receipts})
    later = [f"{address}: {answer.text}" for address, answer in answers.items() if answer.later]
    refused = [f"{a}: {answer.text}" for a, answer in answers.items() if not answer.accepted and not answer.later]
    told = [trouble.detail] if trouble is not None else []
    told += [f"refused for now: {_names(later)}"] if later else []
    told += [f"refused for good: {_names(refused)}"] if refused else []
    told += [f"taken for {_names(taken)}"] if taken else []
    if trouble is None and not later:
        told.append("put the cause right and redrive it: only who was refused is tried again")
        return Undelivered("; ".join(told), final=True)
    return Undelivered("; ".join(told), final=trouble is not None and trouble.final)


def _names(names: Sequence[str]) -> str:
    """As many of them as have room in a detail."""
    shown = list(names)
    while len(shown) > 1 and len(", ".join(shown)) > _NAMES_CHARS_MAX:
        shown.pop()
    more = len(names) - len(shown)
    return ", ".join(shown)[:_NAMES_CHARS_MAX] + (f" and {more} more" if more else "")
