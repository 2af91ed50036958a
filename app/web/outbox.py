"""The outbox over HTTP: what is not delivered, and what a person may do about it."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, JsonValue

from app.web.who import Who
from transactions.backlog import Standing

router = APIRouter()


class DeliveryView(BaseModel):
    """How one entry stands with one consumer: since when, why, and what to do about it (null: it is settled)."""

    consumer: str
    state: str
    standing: str
    attempt: int
    attempts_max: int
    due_at: datetime
    since: datetime | None
    why: str | None
    what_to_do: str | None


class OpenDelivery(DeliveryView):
    entry_id: str
    topic: str
    key: str | None
    run_id: str | None
    put_at: datetime


class TakenDelivery(DeliveryView):
    """`taken_at`: when its consumer said that it took the entry, whatever became of the delivery."""

    settled_at: datetime | None
    receipt: JsonValue
    taken_at: datetime | None


class EntryView(BaseModel):
    entry_id: str
    topic: str
    key: str | None
    key_seq: int | None
    run_id: str | None
    action_id: str | None
    payload: JsonValue
    put_at: datetime
    deliveries: list[TakenDelivery]


class Redrive(BaseModel):
    """Every dead delivery of the entry, or the one to `consumer`."""

    model_config = ConfigDict(extra="forbid")
    consumer: str | None = None


class Discard(BaseModel):
    """Every dead delivery of the entry, or the one to `consumer`, dead or pending."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    consumer: str | None = None


# Ids of entries contain `#`, `/` and `:`; in a path, `#` is written `%23`.


@router.get("/outbox")
async def deliveries(
    who: Who,
    standing: Annotated[Standing | None, Query(alias="state")] = None,
    topic: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[OpenDelivery]:
    rows = await who.deliveries(standing=standing, topic=topic, limit=limit)
    return [OpenDelivery.model_validate(dict(row)) for row in rows]


@router.get("/outbox/{entry_id:path}")
async def entry(who: Who, entry_id: str) -> EntryView:
    found = await who.entry(entry_id)
    return EntryView.model_validate({**found, "deliveries": [dict(row) for row in found["deliveries"]]})


@router.post("/outbox/{entry_id:path}/redrive")
async def redrive(who: Who, entry_id: str, body: Redrive | None = None) -> EntryView:
    await who.redrive(entry_id, consumer=(body or Redrive()).consumer)
    return await entry(who, entry_id)


@router.post("/outbox/{entry_id:path}/discard")
async def discard(who: Who, entry_id: str, body: Discard) -> EntryView:
    await who.discard(entry_id, reason=body.reason, consumer=body.consumer)
    return await entry(who, entry_id)
