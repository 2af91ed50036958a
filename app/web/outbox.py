"""The outbox over HTTP: what is not delivered, and what a person may do about it."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, JsonValue

from transactions.backlog import Standing

if TYPE_CHECKING:
    from app.surefoot import Surefoot


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
    by: str = "unauthenticated"


class Discard(BaseModel):
    """Every dead delivery of the entry, or the one to `consumer`, dead or pending."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    consumer: str | None = None
    by: str = "unauthenticated"


def outbox_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    """Ids of entries contain `#`, `/` and `:`; in a path, `#` is written `%23`."""

    @api.get("/outbox")
    async def deliveries(
        standing: Annotated[Standing | None, Query(alias="state")] = None,
        topic: str | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> list[OpenDelivery]:
        rows = await surefoot.deliveries(standing=standing, topic=topic, limit=limit)
        return [OpenDelivery.model_validate(dict(row)) for row in rows]

    async def view(entry_id: str) -> EntryView:
        found = await surefoot.entry(entry_id)
        return EntryView.model_validate({**found, "deliveries": [dict(row) for row in found["deliveries"]]})

    @api.get("/outbox/{entry_id:path}")
    async def entry(entry_id: str) -> EntryView:
        return await view(entry_id)

    @api.post("/outbox/{entry_id:path}/redrive")
    async def redrive(entry_id: str, body: Redrive | None = None) -> EntryView:
        asked = body or Redrive()
        await surefoot.redrive(entry_id, consumer=asked.consumer, by=asked.by)
        return await view(entry_id)

    @api.post("/outbox/{entry_id:path}/discard")
    async def discard(entry_id: str, body: Discard) -> EntryView:
        await surefoot.discard(entry_id, reason=body.reason, consumer=body.consumer, by=body.by)
        return await view(entry_id)
