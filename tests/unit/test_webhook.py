"""What a webhook comes to: what is signed and sent, where it never goes, and what an answer means."""

import asyncio
import base64
import json
import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from outbox import Delivered, Undelivered, verify_webhook
from outbox.signatures import keys_of, sign
from tests.hooks import DEADLINE_S, HOST, KEY, OLD_SECRET, SECRET, answer, consumer_of, delivery, sent
from tests.receiver import OK, Receiver, Request
from transactions import EntryId, Forbidden, WorkerId


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
