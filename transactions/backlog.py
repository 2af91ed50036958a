"""What of the outbox is not delivered, and what a person may do about it: have it delivered again, or give it up."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.canonical import REASON_CHARS_MAX
from transactions.database import fetch_all, fetch_one
from transactions.errors import Conflict, InvalidInput, NotFound
from transactions.events import Event, number
from transactions.ids import EntryId, Tenant
from transactions.outbox import DELIVERY_ATTEMPTS_MAX, EFFECT
from transactions.statements import load
from transactions.states import DeliveryState
from transactions.words import check_words

_OUTBOX = load("outbox")


class Standing(StrEnum):
    """How a delivery stands: its state, or why a pending one cannot go. What `list` can be asked for."""

    PARKED = "parked"
    PENDING = "pending"
    UNDELIVERABLE = "undeliverable"  # pending, and no live worker has its consumer
    BLOCKED = "blocked"  # pending, behind a dead one of its key
    CLAIMED = "claimed"
    DEAD = "dead"
    DELIVERED = "delivered"
    DISCARDED = "discarded"


async def page(
    session: AsyncSession, tenant: Tenant, *, standing: Standing | None, topic: str | None, limit: int
) -> Sequence[Mapping[str, Any]]:
    """Deliveries, oldest entry first, at most `limit`; by default what is not settled, or dead.

    `pending` includes what is undeliverable or blocked. Of `surefoot.outbox_open`: `since`, `why` and `what_to_do`.
    """
    return await fetch_all(session, _OUTBOX["deliveries_page"], tenant=tenant, state=standing, topic=topic, limit=limit)


async def entry(session: AsyncSession, entry_id: EntryId) -> Mapping[str, Any]:
    """An entry with its payload and, under `deliveries`, one row for each consumer. Raises NotFound."""
    row = await fetch_one(session, _OUTBOX["entry"], entry_id=entry_id)
    if row is None:
        raise NotFound(f"No entry {entry_id}: see `surefoot outbox list`.")
    return {**row, "deliveries": await fetch_all(session, _OUTBOX["deliveries_of_entry"], entry_id=entry_id)}


async def redrive(session: AsyncSession, entry_id: EntryId, *, consumer: str | None, by: str) -> Sequence[str]:
    """Dead deliveries of an entry are due now, with as many attempts as a new one has. The consumers.

    consumer: that delivery; None: every dead one. Raises NotFound, Conflict (nothing of it is dead), InvalidInput.
    """
    check_words(by, None)
    found = await entry(session, entry_id)
    asked = _chosen(found, consumer)
    rows = await fetch_all(
        session,
        _OUTBOX["redrive_if_dead"],
        entry_id=entry_id,
        consumers=asked,
        attempts=DELIVERY_ATTEMPTS_MAX,
        told=f"redriven by {by}",
        chars=REASON_CHARS_MAX,
    )
    if not rows:
        raise Conflict(f"{await _told(session, entry_id, asked)}: only a dead one can be redriven.")
    return await _numbered(session, found, rows, "delivery.redriven", {"by": by})


async def discard(
    session: AsyncSession, entry_id: EntryId, *, consumer: str | None, reason: str, by: str
) -> Sequence[str]:
    """Deliveries of an entry are given up for good, and the next of their key may go. The consumers.

    consumer: that delivery, dead or pending; None: every dead one, or the only one.
    Raises NotFound, Conflict, InvalidInput (no reason).
    """
    check_words(by, reason)
    if not reason.strip():
        raise InvalidInput("Say why it is discarded (--reason WHY): the reason is kept, and nothing brings it back.")
    found = await entry(session, entry_id)
    asked = _chosen(found, consumer)
    if len(asked) > 1:
        dead = [row["consumer"] for row in found["deliveries"] if row["state"] == DeliveryState.DEAD]
        if not dead:
            raise Conflict(f"{await _told(session, entry_id, asked)}: say which one to discard (--consumer NAME).")
        asked = dead
    rows = await fetch_all(
        session,
        _OUTBOX["discard_if_dead_or_pending"],
        entry_id=entry_id,
        consumers=asked,
        told=f"discarded by {by}: {reason}",
        chars=REASON_CHARS_MAX,
    )
    if not rows:
        raise Conflict(f"{await _told(session, entry_id, asked)}: only a dead or pending one can be discarded.")
    return await _numbered(session, found, rows, "delivery.discarded", {"by": by, "reason": reason})


async def _numbered(
    session: AsyncSession,
    found: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    kind: str,
    said: Mapping[str, JsonValue],
) -> Sequence[str]:
    """The consumers of these rows, told in an event of the entry's run, if it has one."""
    done: list[str] = sorted(row["consumer"] for row in rows)
    if found["run_id"] is not None:
        data: dict[str, JsonValue] = {"entry": found["entry_id"], "consumers": list[JsonValue](done), **said}
        await number(session, found["run_id"], Event(kind, data))
    return done


def _chosen(found: Mapping[str, Any], consumer: str | None) -> list[str]:
    """The consumers that are meant. Raises NotFound, and Conflict for an effect."""
    names: list[str] = [row["consumer"] for row in found["deliveries"]]
    if EFFECT in names and consumer in (None, EFFECT):
        raise Conflict(
            f"Entry {found['entry_id']} is an effect: it belongs to its action, and its action decides what becomes of "
            "it (`surefoot actions`)."
        )
    if consumer is not None and consumer not in names:
        raise NotFound(f"Entry {found['entry_id']} does not go to {consumer!r}: choose one of: {', '.join(names)}.")
    return names if consumer is None else [consumer]


async def _told(session: AsyncSession, entry_id: EntryId, asked: Sequence[str]) -> str:
    """How these deliveries stand now: it may have changed since they were looked at."""
    rows = [row for row in (await entry(session, entry_id))["deliveries"] if row["consumer"] in asked]
    return f"Entry {entry_id} " + " and ".join(f"to {row['consumer']} {_is(row)}" for row in rows)


def _is(row: Mapping[str, Any]) -> str:
    match row["state"]:
        case DeliveryState.DELIVERED:
            return f"was delivered at {row['settled_at']:%Y-%m-%d %H:%M:%S %Z}"
        case DeliveryState.DISCARDED:
            return f"is {row['detail'] or 'discarded'}"
        case DeliveryState.CLAIMED:
            return f"is being delivered by worker {row['worker_id']}, attempt {row['attempt']}"
        case DeliveryState.PENDING:
            why = f" ({row['why']})" if row["standing"] != DeliveryState.PENDING else ""
            return f"is {row['standing']}{why} and goes by itself"
        case state:
            return f"is {state}"
