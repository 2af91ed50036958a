"""Entries still to be forwarded, their deliveries, and the inbox of those who take them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.canonical import canonical_json, storable_json, storable_reason
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import InvalidInput
from transactions.ids import ActionId, EntryId, RunId, Tenant, WorkerId
from transactions.statements import load
from transactions.words import checked_json

_OUTBOX = load("outbox")

EFFECT = "effect"
# Told by the database itself when a run gets into the state; see migration 0004.
RUN_TOPICS = ("run.finished", "run.failed", "run.cancelled", "run.held", "run.waiting")
APPROVAL_TOPICS = REQUESTED, REMINDER, ESCALATED = "approval.requested", "approval.reminder", "approval.escalated"
OWN_TOPICS = frozenset((EFFECT, *RUN_TOPICS, *APPROVAL_TOPICS))
DELIVERY_ATTEMPTS_MAX = 20
_EFFECT_DELIVERIES_MAX = 1_000_000
PAYLOAD_BYTES_MAX = 256 * 1024
NAME_CHARS_MAX = 500
RECEIPT_BYTES_MAX = 64 * 1024
DELAY_MAX = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry claimed for one consumer: `attempt` counts from 1 and is what an acknowledgement must name.

    `taken`: what the inbox says, `{"receipt": ...}`, when this consumer has taken the entry before.
    """

    entry_id: EntryId
    consumer: str
    attempt: int
    attempts_max: int
    worker_id: WorkerId
    tenant: Tenant
    run_id: RunId | None
    action_id: ActionId | None
    topic: str
    payload: JsonValue
    created_at: datetime
    taken: Mapping[str, JsonValue] | None = None

    @property
    def tries(self) -> int:
        """Attempts since it was put, or since a person had it delivered again."""
        return self.attempt - max(0, self.attempts_max - DELIVERY_ATTEMPTS_MAX)


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended: delivered with a receipt, pending again after `pause_s` seconds, or dead."""

    delivery: Delivery
    state: Literal["delivered", "pending", "dead"]
    detail: str | None = None
    receipt: JsonValue = None
    pause_s: float = 0.0


async def put(
    session: AsyncSession,
    *,
    entry_id: EntryId,
    tenant: Tenant,
    run_id: RunId | None,
    action_id: ActionId | None,
    topic: str,
    payload: JsonValue,
    consumers: Sequence[str] | None = None,
    key: str | None = None,
    parked: bool = False,
    delay: timedelta = timedelta(0),
    attempts_max: int = DELIVERY_ATTEMPTS_MAX,
) -> bool:
    """Write an entry and one delivery for each consumer, in the caller's transaction. False: it was there already.

    consumers: None means those who are subscribed to the topic, and the consumer of the topic's own name if nobody is.
    delay: due so much later, at most DELAY_MAX. Entries of one `key` are numbered here, and delivered to each consumer
    in that order: one that is not due yet holds the later ones back. Raises InvalidInput.
    """
    _check_put(topic, key, delay)
    text = checked_json(f"payload for {topic}", payload, bytes_max=PAYLOAD_BYTES_MAX)
    key_seq = None if key is None else await _next_of_key(session, tenant, topic, key)
    inserted = await fetch_one(
        session,
        _OUTBOX["insert_entry"],
        entry_id=entry_id,
        tenant=tenant,
        run_id=run_id,
        action_id=action_id,
        topic=topic,
        key=key,
        key_seq=key_seq,
        payload=text,
    )
    if inserted is None:
        return False
    await execute(
        session,
        _OUTBOX["insert_deliveries"],
        entry_id=entry_id,
        topic=topic,
        key=key,
        key_seq=key_seq,
        consumers=None if consumers is None else list(consumers),
        tenant=tenant,
        state="parked" if parked else "pending",
        delay_s=delay.total_seconds(),
        attempts_max=attempts_max,
    )
    return True


def _check_put(topic: str, key: str | None, delay: timedelta) -> None:
    for what, name in (("topic", topic), ("key", key)):
        if name is not None and not 1 <= len(name) <= NAME_CHARS_MAX:
            raise InvalidInput(f"The {what} {name[:20]!r} has {len(name)} characters: give 1 to {NAME_CHARS_MAX}.")
    if not timedelta(0) <= delay <= DELAY_MAX:
        raise InvalidInput(
            f"The entry for {topic} is delayed by {delay}: give at least 0 and at most {DELAY_MAX.days} days."
        )


async def _next_of_key(session: AsyncSession, tenant: Tenant, topic: str, key: str) -> int:
    """Its row stays locked until the writer's commit: numbers are in the order of the commits."""
    row = await fetch_one(session, _OUTBOX["next_of_key"], tenant=tenant, topic=topic, key=key)
    assert row is not None
    return int(row["last_seq"])


async def claim_due(
    session: AsyncSession,
    *,
    consumers: Sequence[str],
    agents: Sequence[str],
    worker_id: WorkerId,
    lease_s: float,
    limit: int,
) -> list[Delivery]:
    """Claim deliveries that are due, or whose claimant is gone, passing over those that others hold.

    Effects only of these agents: another worker has the bodies of the others.
    """
    rows = await fetch_all(
        session,
        _OUTBOX["claim_due_with_skip_locked"],
        consumers=list(consumers),
        agents=list(agents),
        worker_id=worker_id,
        lease_s=lease_s,
        limit=limit,
    )
    return [_delivery(row, worker_id) for row in rows]


def _delivery(row: Mapping[str, Any], worker_id: WorkerId) -> Delivery:
    return Delivery(
        entry_id=row["entry_id"],
        consumer=row["consumer"],
        attempt=row["attempt"],
        attempts_max=row["attempts_max"],
        worker_id=worker_id,
        tenant=row["tenant"],
        run_id=row["run_id"],
        action_id=row["action_id"],
        topic=row["topic"],
        payload=row["payload"],
        created_at=row["created_at"],
        taken=row["taken"],
    )


async def put_effect(
    session: AsyncSession,
    action_id: ActionId,
    *,
    tenant: Tenant,
    run_id: RunId,
    key: str | None = None,
    parked: bool = False,
) -> None:
    """The entry of an effect, in the commit that prepares it; nothing when it is there. parked: until its call's turn.

    Its own attempts and verifications are what is bounded; its delivery only carries the question back.
    """
    await put(
        session,
        entry_id=EntryId(action_id),
        tenant=tenant,
        run_id=run_id,
        action_id=action_id,
        topic=EFFECT,
        payload=None,
        consumers=(EFFECT,),
        key=key,
        parked=parked,
        attempts_max=_EFFECT_DELIVERIES_MAX,
    )


async def take_effect(session: AsyncSession, action_id: ActionId, *, worker_id: WorkerId, lease_s: float) -> int | None:
    """Claim the delivery of one effect if nobody alive holds it. The attempt to name from now on, or None."""
    row = await fetch_one(
        session, _OUTBOX["take_if_free"], entry_id=action_id, consumer=EFFECT, worker_id=worker_id, lease_s=lease_s
    )
    return None if row is None else int(row["attempt"])


async def give_back_effect(
    session: AsyncSession, action_id: ActionId, *, attempt: int, worker_id: WorkerId, pause_s: float, detail: str
) -> None:
    """Return an effect's delivery to the schedule, due again after `pause_s`."""
    await execute(
        session,
        _OUTBOX["back_off_attempt"],
        entry_id=action_id,
        consumer=EFFECT,
        attempt=attempt,
        worker_id=worker_id,
        pause_s=pause_s,
        detail=storable_reason(detail),
    )


async def park_effect(session: AsyncSession, action_id: ActionId, *, detail: str) -> None:
    """Off the schedule, whoever held it: only a person brings it back (`due_now`)."""
    await execute(session, _OUTBOX["park_if_open"], entry_id=action_id, consumer=EFFECT, detail=storable_reason(detail))


async def is_parked(session: AsyncSession, action_id: ActionId) -> bool:
    return await fetch_one(session, _OUTBOX["parked"], entry_id=action_id, consumer=EFFECT) is not None


async def due_now(session: AsyncSession, action_id: ActionId, *, detail: str) -> None:
    """An effect that rests is due at once. One that somebody drives they send themselves."""
    await execute(
        session, _OUTBOX["due_now_if_resting"], entry_id=action_id, consumer=EFFECT, detail=storable_reason(detail)
    )


async def renew(
    session: AsyncSession, entry_id: str, consumer: str, *, attempt: int, worker_id: WorkerId, lease_s: float
) -> bool:
    """Keep a claim for another `lease_s`. False: it is no longer ours."""
    row = await fetch_one(
        session,
        _OUTBOX["renew_if_mine"],
        entry_id=entry_id,
        consumer=consumer,
        attempt=attempt,
        worker_id=worker_id,
        lease_s=lease_s,
    )
    return row is not None


async def settle(session: AsyncSession, ends: Sequence[End]) -> frozenset[tuple[str, str, int]]:
    """Settle several attempts in one commit. Those that held their claim, as (entry, consumer, attempt).

    What was delivered is in the consumer's inbox even so: that is a fact, whoever holds the claim by now.
    """
    if taken := [_told(end) for end in ends if end.state == "delivered"]:
        await execute(session, _OUTBOX["take_all_into_inbox"], taken=canonical_json(taken))
    rows = await fetch_all(session, _OUTBOX["settle_attempts"], ended=canonical_json([_told(end) for end in ends]))
    return frozenset((row["entry_id"], row["consumer"], row["attempt"]) for row in rows)


def _told(end: End) -> JsonValue:
    delivery = end.delivery
    return {
        "entry_id": delivery.entry_id,
        "consumer": delivery.consumer,
        "tenant": delivery.tenant,
        "worker_id": delivery.worker_id,
        "attempt": delivery.attempt,
        "state": end.state,
        "pause_s": end.pause_s,
        "detail": None if end.detail is None else storable_reason(end.detail),
        "receipt": _receipt(end.receipt),
    }


def _receipt(receipt: JsonValue) -> JsonValue:
    """The receipt as it can be stored. What cannot is left out, and that is said: it was delivered all the same."""
    try:
        text = storable_json(receipt)
    except (TypeError, ValueError, RecursionError) as error:
        return {"not_kept": storable_reason(f"the receipt is not JSON: {type(error).__name__}: {error}")}
    if len(text) > RECEIPT_BYTES_MAX or len(text.encode()) > RECEIPT_BYTES_MAX:
        return {"not_kept": f"the receipt has over {RECEIPT_BYTES_MAX} bytes"}
    return json.loads(text)


async def acknowledge(
    session: AsyncSession, delivery: Delivery, *, receipt: JsonValue, detail: str | None = None
) -> bool:
    """DELIVERED with the consumer's receipt, and in its inbox. False: this attempt no longer holds the claim."""
    return bool(await settle(session, [End(delivery, "delivered", detail, receipt)]))


async def close_effect(
    session: AsyncSession,
    action_ids: Sequence[ActionId],
    *,
    state: Literal["delivered", "dead", "discarded"],
    detail: str,
) -> None:
    """Close the deliveries of actions that have settled, in the same commit."""
    if action_ids:
        await execute(
            session,
            _OUTBOX["close_of_action"],
            action_ids=list(action_ids),
            state=state,
            detail=storable_reason(detail),
        )


async def take_into_inbox(session: AsyncSession, delivery: Delivery, *, result: JsonValue = None) -> bool:
    """Say that this consumer has taken the entry, in the transaction of its effect. False: it had taken it before."""
    row = await fetch_one(
        session,
        _OUTBOX["take_into_inbox"],
        consumer=delivery.consumer,
        entry_id=delivery.entry_id,
        tenant=delivery.tenant,
        result=storable_json(result),
    )
    return row is not None
