"""A webhook of a test: its receiver's name, its secret, an entry to deliver, and what a receiver can answer."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from outbox import Outcome, WebhookConsumer
from tests.receiver import Receiver
from transactions import DEFAULT_TENANT, EntryId, WorkerId
from transactions.outbox import Delivery

HOST = "hooks.example.org"  # no name server knows it: only the resolver of a test
KEY = bytes(range(200, 232))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OLD_SECRET = "whsec_" + base64.b64encode(bytes(24)).decode()
DEADLINE_S = 1.0
AT = datetime(2026, 11, 3, 20, 26, 10, 344522, tzinfo=UTC)


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
