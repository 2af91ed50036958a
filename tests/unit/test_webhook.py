"""What a webhook comes to: what is signed and sent, where it never goes, and what an answer means."""

import asyncio
import base64
import json
import logging
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from outbox import Delivered, Outcome, Undelivered, WebhookConsumer, addresses, verify_webhook
from outbox.addresses import refusal
from outbox.signatures import keys_of, sign
from tests.certificates import Authority
from tests.receiver import OK, Receiver, Request
from transactions import DEFAULT_TENANT, EntryId, Forbidden, InvalidInput, WorkerId
from transactions.outbox import Delivery

HOST = "hooks.example.org"  # no name server knows it: only the resolver of a test
KEY = bytes(range(200, 232))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OLD_SECRET = "whsec_" + base64.b64encode(bytes(24)).decode()
DEADLINE_S = 1.0
AT = datetime(2026, 11, 3, 20, 26, 10, 344522, tzinfo=UTC)


@pytest.fixture
async def receiver(authority: Authority) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with receiver.listening(authority.server(f"DNS:{HOST}")):
        yield receiver


def at(*found: str) -> Any:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return found

    return resolve


def consumer_of(receiver: Receiver, path: str = "/in", **settings: Any) -> WebhookConsumer:
    defaults = {"secret": SECRET, "allow_private": True, "timeout_s": DEADLINE_S, "resolve": at("127.0.0.1")}
    return WebhookConsumer(f"https://{HOST}:{receiver.port}{path}", **{**defaults, **settings})


def delivery(attempt: int = 1, **changes: Any) -> Delivery:
    fields = {
        "entry_id": EntryId("run/1/0:tool#news:0"),
        "consumer": "webhook",
        "attempts_max": 20,
        "worker_id": WorkerId("ada"),
        "tenant": DEFAULT_TENANT,
        "run_id": None,
        "action_id": None,
        "topic": "report.published",
        "payload": {"name": "Größe", "id": 7},
        "created_at": AT,
    }
    return Delivery(attempt=attempt, **{**fields, **changes})


async def sent(receiver: Receiver, **settings: Any) -> Outcome:
    return await consumer_of(receiver, **settings).take(delivery())


def answer(status: int, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} So", f"Content-Length: {len(body.encode())}", *headers, "", body]
    return "\r\n".join(lines).encode()


def signature_by_openssl(key: bytes, content: bytes) -> str:
    command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key.hex()}", "-binary"]
    return (
        "v1,"
        + base64.b64encode(subprocess.run(command, input=content, check=True, capture_output=True).stdout).decode()
    )


# What is sent.


async def test_an_entry_goes_as_the_standard_webhooks_say(receiver: Receiver) -> None:
    outcome = await sent(receiver, path="/in?token=1234567890", secret=f"{SECRET} {OLD_SECRET}")
    [request] = receiver.requests
    webhook_id = request.headers["webhook-id"]
    assert request.line == "POST /in?token=1234567890 HTTP/1.1"
    assert request.headers["host"] == f"{HOST}:{receiver.port}"
    assert json.loads(request.body) == {
        "type": "report.published",
        "timestamp": "2026-11-03T20:26:10.344522Z",
        "data": {"name": "Größe", "id": 7},
    }
    assert webhook_id.startswith("msg_")
    assert "." not in webhook_id
    assert request.headers["idempotency-key"] == webhook_id
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
    content = f"{webhook_id}.{request.headers['webhook-timestamp']}.".encode() + request.body
    assert request.headers["webhook-signature"].split() == [
        signature_by_openssl(KEY, content),
        signature_by_openssl(bytes(24), content),
    ]
    assert verify_webhook(request.headers, request.body, OLD_SECRET) == webhook_id
    receipt = {"status": 200, "webhook_id": webhook_id, "headers": {"content-type": "application/json"}}
    assert outcome == Delivered({**receipt, "body": {"taken": "a"}})


def test_the_signature_is_the_published_one() -> None:
    keys = keys_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = sign(keys, webhook_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_after_a_lost_answer_it_comes_again_with_the_same_id_and_body(receiver: Receiver) -> None:
    receiver.answers = [b"", b"HTTP/1.1 500 So\r\nContent-Length: 0\r\n\r\n", OK]
    consumer = consumer_of(receiver)
    outcomes = [await consumer.take(delivery(attempt, worker_id=WorkerId(f"w{attempt}"))) for attempt in (1, 2, 3)]
    assert [isinstance(outcome, Delivered) for outcome in outcomes] == [False, False, True]
    assert not any(isinstance(outcome, Undelivered) and outcome.final for outcome in outcomes)
    assert len({(request.body, request.headers["webhook-id"]) for request in receiver.requests}) == 1
    assert len(receiver.requests) == 3
    other = await consumer.take(delivery(entry_id=EntryId("another")))
    assert isinstance(other, Delivered)
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"body": b"{}"},
        {"webhook-id": "msg_other"},
        {"webhook-id": ""},
        {"webhook-timestamp": str(int(time.time()) + 5)},
        {"webhook-timestamp": "1614265330"},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": "v1,AAAA v1a,BBBB"},
        {"webhook-signature": ""},
    ],
)
def test_a_receiver_that_verifies_refuses_what_was_changed(change: dict[str, Any]) -> None:
    now = int(time.time())
    signature = sign(keys_of(SECRET), webhook_id="msg_1", timestamp=now, body=b"{1}")
    headers = {"Webhook-Id": "msg_1", "webhook-timestamp": str(now), "webhook-signature": f"v1a,x {signature}"}
    assert verify_webhook(headers, b"{1}", [SECRET]) == "msg_1"
    lower = {name.lower(): value for name, value in headers.items()}
    with pytest.raises(Forbidden):
        verify_webhook({**lower, **change, "body": ""}, change.get("body", b"{1}"), SECRET)


# Where it never goes.

PRIVATE = (
    "127.0.0.1",
    "127.9.9.9",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.9.9",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd12::1",
)
NEVER = (
    "0.0.0.0",
    "169.254.169.254",
    "169.254.1.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001::1",
    "2001:db8::1",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
)
PUBLIC = ("8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.1.0.1", "2606:4700::1111", "2a00:1450::1")


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_allowed_only_on_demand(address: str) -> None:
    assert "private" in (refusal([address], allow_private=False) or "")
    assert refusal([address], allow_private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_an_address_that_is_no_endpoint_is_never_allowed(address: str) -> None:
    assert refusal([address], allow_private=False)
    assert refusal([address], allow_private=True)


def test_every_address_of_a_host_has_to_be_allowed() -> None:
    assert refusal(PUBLIC, allow_private=False) is None
    assert refusal([*PUBLIC, "10.0.0.1"], allow_private=False)
    assert refusal([], allow_private=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_nothing_is_sent_to_this_machine(authority: Authority, host: str) -> None:
    """With the resolver of this machine; the server would be there."""
    receiver = Receiver()
    async with receiver.listening(authority.server("IP:127.0.0.1", "DNS:localhost")):
        consumer = WebhookConsumer(f"https://{host}:{receiver.port}/", secret=SECRET, timeout_s=5.0)
        outcome = await consumer.take(delivery())
        assert isinstance(outcome, Undelivered)
        assert outcome.final
        assert "nothing was sent" in outcome.detail
        assert "allow_private" in outcome.detail
        assert receiver.requests == []
        if host in ("127.0.0.1", "localhost"):
            allowed = WebhookConsumer(f"https://{host}:{receiver.port}/", secret=SECRET, allow_private=True)
            assert isinstance(await allowed.take(delivery()), Delivered)


async def test_http_goes_to_this_machine_on_demand() -> None:
    receiver = Receiver()
    async with receiver.listening():
        consumer = WebhookConsumer(f"http://127.0.0.1:{receiver.port}/in", secret=SECRET, allow_private=True)
        assert isinstance(await consumer.take(delivery()), Delivered)
    assert receiver.requests[0].headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.fixture
def first_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands for an address of the world, and 127.0.0.2 for one of this network."""
    private = [network for network in addresses._PRIVATE if str(network) != "127.0.0.0/8"]
    monkeypatch.setattr(addresses, "_PRIVATE", (*private, addresses.ipaddress.ip_network("127.0.0.2/32")))


class Rebinding:
    """A name server that answers with an address of the world first, and with one of this network from then on."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return ["127.0.0.1"] if self.asked == 1 else ["127.0.0.2"]


class Careless(WebhookConsumer):
    """Resolves the name again to connect, as a client that is given the name does."""

    async def _post_to(self, address: str, *rest: Any) -> Any:
        [again] = await self._resolve(self._host, self._port)
        return await super()._post_to(again, *rest)


@pytest.mark.usefixtures("first_is_public")
@pytest.mark.parametrize("kind", [WebhookConsumer, Careless])
async def test_what_was_checked_is_what_is_connected_to(authority: Authority, kind: type[WebhookConsumer]) -> None:
    outside, inside, rebinding = Receiver(), Receiver(), Rebinding()
    async with AsyncExitStack() as stack:
        tls = authority.server(f"DNS:{HOST}")
        await stack.enter_async_context(outside.listening(tls))
        await stack.enter_async_context(inside.listening(tls, "127.0.0.2", outside.port))
        consumer = kind(f"https://{HOST}:{outside.port}/", secret=SECRET, resolve=rebinding)
        first = await consumer.take(delivery())
        if kind is Careless:  # the control: it hands the entry to whom nobody checked
            assert (len(outside.requests), len(inside.requests)) == (0, 1)
            return
        assert isinstance(first, Delivered)
        assert rebinding.asked == 1
        second = await consumer.take(delivery(2))
    assert isinstance(second, Undelivered)
    assert second.final
    assert (len(outside.requests), len(inside.requests)) == (1, 0)


async def test_another_address_is_tried_when_one_takes_no_connection(receiver: Receiver) -> None:
    assert isinstance(await sent(receiver, resolve=at("::1", "127.0.0.1")), Delivered)
    outcome = await sent(receiver, resolve=at("::1"))
    assert isinstance(outcome, Undelivered)
    assert not outcome.final
    assert "transient" in outcome.detail


async def test_a_redirect_is_not_followed(receiver: Receiver, authority: Authority) -> None:
    other = Receiver()
    async with other.listening(authority.server(f"DNS:{HOST}")):
        for status in (301, 302, 303, 307, 308):
            receiver.answers = [answer(status, "", f"Location: https://{HOST}:{other.port}/moved")]
            outcome = await sent(receiver)
            assert isinstance(outcome, Undelivered)
            assert outcome.final
            assert "a redirect is never followed" in outcome.detail
    assert other.requests == []


async def test_a_proxy_in_the_environment_is_not_asked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert isinstance(await sent(receiver), Delivered)


async def test_a_certificate_for_another_name_or_by_nobody_we_trust_gets_nothing(
    receiver: Receiver, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Receiver()
    async with other.listening(authority.server("DNS:evil.example.org", "IP:127.0.0.1")):
        wrong = [await sent(other)]
    monkeypatch.delenv("SSL_CERT_FILE")
    wrong.append(await sent(receiver))
    for outcome in wrong:
        assert isinstance(outcome, Undelivered)
        assert not outcome.final
        assert "certificate" in outcome.detail.lower()
    assert other.requests == receiver.requests == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.org/", "in the clear"),
        ("ftp://hooks.example.org/", "not one of the web"),
        ("hooks.example.org", "not one of the web"),
        ("https:///in", "not one of the web"),
        ("https://hooks.example.org:no/", "not one"),
        ("https://ada:hunter22@hooks.example.org/", "user or password"),
        ("https://2130706433/", "neither a name nor an address"),
        ("https://0x7f000001/", "neither a name nor an address"),
        ("https://0177.0.0.1/", "not one"),
        ("https://127.1/", "neither a name nor an address"),
        ("https://%31%32%37.0.0.1/", "neither a name nor an address"),
        ("https://a_b..c/", "neither a name nor an address"),
        ("https://" + "a" * 64 + ".org/", "neither a name nor an address"),
        ("", "not one of the web"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_at_once(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as error:
        WebhookConsumer(url, secret=SECRET)
    assert "https://" in str(error.value)
    assert "hunter22" not in str(error.value)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "   ",
        [],
        "hunter22",
        "whsec_",
        "whsec_???",
        base64.b64encode(KEY).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        SECRET + " whsec_nonsense",
    ],
)
def test_a_secret_that_is_missing_or_none_is_refused_at_once(secret: Any) -> None:
    with pytest.raises(InvalidInput, match="openssl rand -base64 32") as error:
        WebhookConsumer(f"https://{HOST}/", secret=secret)
    assert "hunter22" not in str(error.value)
    assert "nonsense" not in str(error.value)


# What an answer means.


@pytest.mark.parametrize(
    ("status", "final"),
    [
        *((status, False) for status in (400, 401, 403, 404, 405, 408, 409, 425, 429, 500, 502, 503, 504)),
        *((status, True) for status in (300, 304, 410, 413, 414, 415, 422)),
    ],
)
async def test_a_failure_is_tried_again_unless_it_is_about_the_url_or_the_entry(
    receiver: Receiver, status: int, final: bool
) -> None:
    receiver.answers = [answer(status, "" if status == 304 else "because")]
    outcome = await sent(receiver)
    assert isinstance(outcome, Undelivered)
    assert outcome.final is final
    assert f"{HOST} answered {status}" in outcome.detail
    assert status == 304 or "because" in outcome.detail


async def test_a_key_with_another_request_is_final_and_one_in_progress_is_not(receiver: Receiver) -> None:
    for text, final in (("idempotency key reused", True), ("idempotent request in progress", False)):
        receiver.answers = [answer(409, text)]
        outcome = await sent(receiver)
        assert isinstance(outcome, Undelivered)
        assert outcome.final is final


@pytest.mark.parametrize("status", [429, 503])
async def test_the_receiver_says_when_to_come_again(receiver: Receiver, status: int) -> None:
    receiver.answers = [answer(status, "", "Retry-After: 120")]
    in_seconds = await sent(receiver)
    receiver.answers = [
        answer(status, "", f"Retry-After: {format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)}")
    ]
    by_date = await sent(receiver)
    receiver.answers = [answer(status)]
    unsaid = await sent(receiver)
    assert isinstance(in_seconds, Undelivered)
    assert isinstance(by_date, Undelivered)
    assert isinstance(unsaid, Undelivered)
    assert (in_seconds.final, in_seconds.again_s, unsaid.again_s) == (False, 120.0, 0.0)
    assert 3500 < by_date.again_s <= 3600


async def body_of(receiver: Receiver, text: str, *headers: str, status: int = 200, limit: int = 4096) -> dict[str, Any]:
    receiver.answers = [answer(status, text, *headers)]
    outcome = await sent(receiver, response_bytes_max=limit)
    assert isinstance(outcome, Delivered)
    assert isinstance(outcome.receipt, dict)
    return dict(outcome.receipt)


async def test_a_receipt_is_what_the_receiver_said_within_its_size(receiver: Receiver) -> None:
    assert (await body_of(receiver, '{"id": 1}', status=202))["body"] == {"id": 1}
    assert (await body_of(receiver, "thanks"))["body"] == "thanks"
    assert (await body_of(receiver, ""))["body"] == ""
    assert (await body_of(receiver, "[" * 4000))["body"] == "[" * 4000
    assert (await body_of(receiver, "x", "Content-Encoding: gzip"))["body"] is None
    assert (await body_of(receiver, "x", "X-Request-Id: r1", "Set-Cookie: a=b"))["headers"] == {"x-request-id": "r1"}
    whole = await body_of(receiver, "ä" * 50, limit=100)
    assert (whole["body"], "truncated" in whole) == ("ä" * 50, False)
    cut = await body_of(receiver, "ä" * 50 + "x", limit=99)
    assert (cut["body"], cut["truncated"]) == ("ä" * 49, True)


async def test_an_answer_without_end_is_cut_and_counts_by_its_status(receiver: Receiver) -> None:
    told: list[int] = []

    def endless(status: int, pause_s: float) -> Any:
        async def write(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(f"HTTP/1.1 {status} So\r\n\r\n".encode())
            with suppress(ConnectionError):
                while told.append(1) or len(told) < 100_000:
                    writer.write(b"x" * (1 if pause_s else 65536))
                    await writer.drain()
                    await asyncio.sleep(pause_s)

        return write

    for status, pause_s in ((200, 0.0), (200, 0.05), (500, 0.05)):
        receiver.answers = [endless(status, pause_s)]
        async with asyncio.timeout(3 * DEADLINE_S):
            outcome = await sent(receiver, response_bytes_max=1000)
        if status == 500:
            assert isinstance(outcome, Undelivered)
            assert not outcome.final
        else:
            assert isinstance(outcome, Delivered)
            assert isinstance(outcome.receipt, dict)
            assert outcome.receipt["truncated"] is True
            assert 10 < len(str(outcome.receipt["body"])) <= 1000


async def test_a_receiver_that_says_nothing_is_given_up_at_the_deadline(receiver: Receiver) -> None:
    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3 * DEADLINE_S)

    async def endless_headers(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        with suppress(ConnectionError):
            for n in range(1000):
                writer.write(f"X-{n}: x\r\n".encode())
                await writer.drain()
                await asyncio.sleep(0.02)

    async def slow_names(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(3 * DEADLINE_S)
        return ["127.0.0.1"]

    receiver.answers = [silent, endless_headers]
    for settings in ({}, {}, {"resolve": slow_names}):
        async with asyncio.timeout(2.5 * DEADLINE_S):
            outcome = await sent(receiver, **settings)
        assert outcome == Undelivered(f"no answer of {HOST} within {DEADLINE_S:g} s")


async def test_an_answer_that_is_no_http_is_tried_again(receiver: Receiver) -> None:
    receiver.answers = [b"220 mail.example.org ESMTP\r\n"]
    outcome = await sent(receiver)
    assert isinstance(outcome, Undelivered)
    assert not outcome.final
    assert "unknown" in outcome.detail


# What stays secret.


async def test_secrets_and_signatures_are_in_no_receipt_detail_or_log(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """However the receiver echoes them: escaped, encoded, in a header, across the end of what is kept."""
    caplog.set_level(logging.DEBUG)
    token = "t0ken-in-the-url"
    encoded = SECRET.removeprefix("whsec_")
    leaks: list[str] = []

    def echo(status: int, pad: int, escaped: Callable[[str], str]) -> Any:
        async def write(request: Request, writer: asyncio.StreamWriter) -> None:
            mine = [request.headers["webhook-signature"].removeprefix("v1,").rstrip("="), encoded, token]
            leaks.extend(mine)
            body = "#" * pad + " ".join(escaped(text) for text in mine * 40)
            writer.write(answer(status, body, f"X-Request-Id: {mine[0]}{mine[1]}"))

        return write

    spellings: list[Callable[[str], str]] = [
        str,
        lambda text: json.dumps(text).replace("/", "\\/"),
        lambda text: text.replace("+", "\\u002B").replace("/", "\\u002f").replace("=", "\\u003d"),
        lambda text: text.replace("+", "%2B").replace("/", "%2f"),
    ]
    said: list[str] = []
    for escaped in spellings:
        for status, pad in ((200, 0), (200, 20), (200, 40), (200, 990), (400, 0), (422, 0)):
            receiver.answers = [echo(status, pad, escaped)]
            outcome = await sent(receiver, path=f"/in?key={token}", response_bytes_max=1000)
            said.append(str(outcome))
    assert len(leaks) == 3 * len(said)
    text = "\n".join(said)
    for spelled, char in (("\\\\", ""), ("u002B", "+"), ("u002f", "/"), ("%2B", "+"), ("%2f", "/")):
        text = text.replace(spelled, char)
    assert not [leak for leak in leaks if leak[:12] in text or leak[-12:] in text]
    assert "[secret]" in text
    logged = "\n".join(record.getMessage() for record in caplog.records if "response" not in record.getMessage())
    assert not [leak for leak in leaks if leak in logged]
    assert SECRET not in repr(vars(consumer_of(receiver))["_url"])
