"""What a consumer has taken of an entry part by part: one row of the inbox for each part, beside that of the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import fetch_all
from transactions.outbox import Delivery, take_into_inbox
from transactions.statements import load

_INBOX = load("inbox")


async def take_part(session: AsyncSession, delivery: Delivery, part: str, *, result: JsonValue) -> bool:
    """Say that this part is done, and how it ended. False: it was said before, and what was said then stays."""
    return await take_into_inbox(session, replace(delivery, consumer=_row(delivery, part)), result=result)


async def parts_taken(session: AsyncSession, delivery: Delivery, parts: Sequence[str]) -> Mapping[str, JsonValue]:
    """The results of those of the `parts` that are done, in any attempt."""
    names = {_row(delivery, part): part for part in parts}
    rows = await fetch_all(session, _INBOX["parts_taken"], entry_id=delivery.entry_id, consumers=list(names))
    return {names[row["consumer"]]: row["result"] for row in rows}


def _row(delivery: Delivery, part: str) -> str:
    return f"{delivery.consumer} {part}"  # a space: no consumer has one in its name
