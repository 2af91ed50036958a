"""What a mail comes to, by what the server says and when it says nothing more."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from outbox import Delivered, MailConsumer, Outcome, SmtpServer, Undelivered
from tests.certificates import Authority
from tests.post import SENDER, PostOffice, claimed, only, post
from transactions import Database, InvalidInput

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


async def sent(smtp: SmtpServer, database: Database) -> Outcome:
    await post(database, "ada")
    return await MailConsumer(smtp, database).take(await claimed(database))


@pytest.mark.parametrize("server", ["never", "QUIT"], indirect=True)
async def test_a_mail_that_was_taken_is_delivered_whatever_comes_after(
    server: tuple[Server, SmtpServer], database: Database
) -> None:
    serving, smtp = server
    assert isinstance(await sent(smtp, database), Delivered)
    assert serving.taken == 1


@pytest.mark.parametrize("server", ["EHLO", "MAIL", "DATA", "."], indirect=True)
async def test_a_server_that_falls_silent_before_is_given_up_at_the_deadline(
    server: tuple[Server, SmtpServer], database: Database
) -> None:
    _, smtp = server
    async with asyncio.timeout(3 * DEADLINE_S):
        outcome = await sent(smtp, database)
    assert isinstance(outcome, Undelivered)
    assert not outcome.final


# TLS and the login.

USER, PASSWORD = "ada", "hunter2+/="


@pytest.fixture
def office() -> PostOffice:
    return PostOffice()


async def test_smtps_is_tls_from_the_first_byte(office: PostOffice, database: Database, authority: Authority) -> None:
    async with office.open(tls=authority.server("DNS:localhost")):
        smtp = SmtpServer.from_url(f"smtps://localhost:{office.port}", sender=SENDER)
        assert isinstance(await sent(smtp, database), Delivered)
    assert [taken.encrypted for taken in office.taken] == [True]


async def test_starttls_comes_before_the_login_and_the_mail(
    office: PostOffice, database: Database, authority: Authority
) -> None:
    tls = authority.server("DNS:localhost")
    locked = {"authenticator": only(USER, PASSWORD), "auth_required": True}
    async with office.open(tls_context=tls, require_starttls=True, **locked):
        smtp = SmtpServer.from_url(f"smtp+starttls://{USER}:hunter2%2B%2F%3D@localhost:{office.port}", sender=SENDER)
        assert isinstance(await sent(smtp, database), Delivered)
    assert [taken.encrypted for taken in office.taken] == [True]


async def test_without_starttls_it_does_not_go_on(office: PostOffice, database: Database) -> None:
    async with office.open(authenticator=only(USER, PASSWORD), auth_require_tls=False):
        outcome = await sent(office.server(starttls=True, user=USER, password=PASSWORD), database)
    assert isinstance(outcome, Undelivered)
    assert outcome.final
    assert "STARTTLS" in outcome.detail
    assert "permission" in outcome.detail
    assert office.asked == []


@pytest.mark.parametrize("names", [("DNS:other.example.org",), None])
async def test_a_certificate_that_does_not_hold_gets_no_login_and_no_mail(
    office: PostOffice,
    database: Database,
    an_authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...] | None,
) -> None:
    """For another name, or by an authority that nobody trusts."""
    if names is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(an_authority.file))
    async with office.open(tls=an_authority.server(*(names or ("DNS:localhost",)))):
        smtp = SmtpServer.from_url(f"smtps://localhost:{office.port}", sender=SENDER)
        outcome = await sent(smtp, database)
    assert isinstance(outcome, Undelivered)
    assert not outcome.final
    assert "SSL_CERT_FILE" in outcome.detail
    assert office.taken == []


async def test_a_wrong_password_is_final_and_is_not_shown(office: PostOffice, database: Database) -> None:
    async with office.open(authenticator=only(USER, PASSWORD), auth_require_tls=False):
        outcome = await sent(office.server(user=USER, password="not-the-one"), database)
    assert isinstance(outcome, Undelivered)
    assert outcome.final
    assert "the login failed (permission)" in outcome.detail
    assert "SUREFOOT_SMTP_URL" in outcome.detail
    assert "not-the-one" not in outcome.detail


def test_a_password_is_not_shown_by_who_holds_it_nor_what_a_server_says_of_it() -> None:
    smtp = SmtpServer("localhost", 25, SENDER, user=USER, password=PASSWORD)
    assert PASSWORD not in repr(smtp)
    for said in (PASSWORD, "aHVudGVyMisvPQ==", "AGFkYQBodW50ZXIyKy89"):
        assert smtp.redacted(f"535 wrong: {said}!") == f"535 wrong: {'[secret]'.ljust(len(said), '*')}!"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("smtp://ada:hunter22@mail.example.org:25", "in the clear: write smtps://"),
        ("smtp://ada:hunter22@192.168.1.1", "in the clear"),
        ("smtps://ada@mail.example.org", "without the other"),
        ("http://ada:hunter22@mail.example.org", "not the URL of a mail server"),
        ("smtps://ada:hunter22@:465", "not the URL of a mail server"),
        ("smtps://ada:hunter22@mail.example.org:port", "not the URL of a mail server"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_password(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as error:
        SmtpServer.from_url(url, sender=SENDER)
    assert "smtp+starttls://" in str(error.value)
    assert "hunter22" not in str(error.value)


def test_a_url_says_the_port_and_the_kind_of_tls() -> None:
    urls = ("smtp://h", "smtps://u:p@h", "smtp+starttls://u:p%40@h", "smtp://u:p@127.0.0.1:2525", "smtp://u:p@[::1]")
    servers = [SmtpServer.from_url(url, sender=SENDER) for url in urls]
    assert [(server.port, server.tls, server.starttls, server.password) for server in servers] == [
        (25, False, False, None),
        (465, True, False, "p"),
        (587, False, True, "p@"),
        (2525, False, False, "p"),
        (25, False, False, "p"),
    ]
