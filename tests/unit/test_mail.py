"""What a mail comes to, by what the server says and when it says nothing more."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from outbox import Delivered, MailConsumer, Outcome, SmtpServer, Undelivered
from transactions import DEFAULT_TENANT, EntryId, WorkerId
from transactions.outbox import Delivery

DEADLINE_S = 1.0
ANSWERS = {
    "EHLO": "250 here",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    ".": "250 taken",
    "QUIT": "221 bye",
}


class Server:
    """An SMTP server that falls silent at one word, and counts the mails it took."""

    def __init__(self, silent_at: str) -> None:
        self.silent_at = silent_at
        self.taken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        text = False
        while line := (await reader.readline()).decode():
            word = line.strip() if text else line.split()[0].upper()
            if text and word != ".":
                continue
            text = word == "DATA"
            if word != self.silent_at:
                self.taken += word == "."
                writer.write(f"{ANSWERS[word]}\r\n".encode())
        writer.close()


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Server, SmtpServer]]:
    serving = Server(request.param)
    listener = await asyncio.start_server(serving.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    yield serving, SmtpServer("127.0.0.1", port, "surefoot@example.org", timeout_s=DEADLINE_S)
    listener.close()


async def sent(smtp: SmtpServer) -> Outcome:
    payload = {"to": ["ada@example.org"], "subject": "hello", "body": "hello"}
    entry = {"tenant": DEFAULT_TENANT, "run_id": None, "action_id": None, "topic": "mail", "payload": payload}
    delivery = Delivery(
        entry_id=EntryId("letter"),
        consumer="mail",
        attempt=1,
        attempts_max=5,
        worker_id=WorkerId("ada"),
        created_at=datetime.now(UTC),
        taken=None,
        **entry,
    )
    return await MailConsumer(smtp).take(delivery)


@pytest.mark.parametrize("server", ["never", "QUIT"], indirect=True)
async def test_a_mail_that_was_taken_is_delivered_whatever_comes_after(server: tuple[Server, SmtpServer]) -> None:
    serving, smtp = server
    assert isinstance(await sent(smtp), Delivered)
    assert serving.taken == 1


@pytest.mark.parametrize("server", ["EHLO", "MAIL", "DATA", "."], indirect=True)
async def test_a_server_that_falls_silent_before_is_given_up_at_the_deadline(server: tuple[Server, SmtpServer]) -> None:
    _, smtp = server
    async with asyncio.timeout(3 * DEADLINE_S):
        outcome = await sent(smtp)
    assert isinstance(outcome, Undelivered)
    assert not outcome.final
