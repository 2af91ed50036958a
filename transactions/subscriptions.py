"""Which consumers get the entries of a topic, and how much may be in flight to one of them, over all workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.canonical import storable_reason
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import NotFound
from transactions.ids import DEFAULT_TENANT
from transactions.statements import load
from transactions.words import check_words

_SUBSCRIPTIONS = load("subscriptions")

# A destination that asks for longer is asked again after an hour, so that a wrong header does not silence it for good.
PAUSE_S_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many deliveries may be claimed for a consumer now; if none, `again_s` seconds from now is soon enough."""

    deliveries: int
    again_s: float


async def announce(
    session: AsyncSession,
    *,
    consumer: str,
    topics: Sequence[str],
    passes_dead: bool,
    in_flight_max: int | None,
    per_second_max: float | None,
) -> None:
    """From this commit on, every entry of these topics goes to this consumer too, whoever writes it.

    The limits are those of the worker that said so last. Topics that it had before stay until they are ended.
    """
    for topic in sorted(topics):  # in one order everywhere: each locks its row
        await execute(
            session,
            _SUBSCRIPTIONS["announce"],
            tenant=DEFAULT_TENANT,
            topic=topic,
            consumer=consumer,
            passes_dead=passes_dead,
        )
    if in_flight_max is None and per_second_max is None:
        await execute(session, _SUBSCRIPTIONS["drop_limits_if_any"], tenant=DEFAULT_TENANT, consumer=consumer)
    else:
        await execute(
            session,
            _SUBSCRIPTIONS["announce_limits"],
            tenant=DEFAULT_TENANT,
            consumer=consumer,
            in_flight_max=in_flight_max,
            per_second_max=per_second_max,
        )


async def page(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """The rows of `surefoot.outbox_topics`, by topic and consumer."""
    return await fetch_all(session, _SUBSCRIPTIONS["topics"])


async def end(session: AsyncSession, topic: str, consumer: str, *, by: str) -> None:
    """No further entry of this topic goes to this consumer; those written before stay. Raises NotFound, InvalidInput.

    A worker that has the subscription announces it again when it starts.
    """
    check_words(by, None)
    if await fetch_one(session, _SUBSCRIPTIONS["end_if_open"], topic=topic, consumer=consumer, by=by) is None:
        raise NotFound(f"{consumer!r} is not subscribed to {topic!r}: see `surefoot outbox topics`.")


async def allowances(session: AsyncSession, consumers: Sequence[str], *, limit: int) -> Mapping[str, Allowance]:
    """For those of these consumers that have limits or are paused: what may be claimed in this transaction.

    Locks their rows until it ends, so that two workers do not use the same room. The others are not in the answer.
    """
    locked = await fetch_all(session, _SUBSCRIPTIONS["lock_limited"], consumers=list(consumers))
    if not locked:
        return {}
    names: list[str] = [row["consumer"] for row in locked]
    rows = await fetch_all(session, _SUBSCRIPTIONS["allowance_of_locked"], consumers=names, limit=limit)
    return {row["consumer"]: Allowance(int(row["deliveries"]), float(row["again_s"])) for row in rows}


async def spend(session: AsyncSession, consumer: str, deliveries: int) -> None:
    """So many were claimed, under the lock of `allowances`."""
    await execute(session, _SUBSCRIPTIONS["spend"], consumer=consumer, deliveries=deliveries)


async def pause(session: AsyncSession, consumer: str, *, pause_s: float, why: str) -> None:
    """Nothing is claimed for this consumer for `pause_s` seconds, at most PAUSE_S_MAX; a longer pause stays."""
    await execute(
        session,
        _SUBSCRIPTIONS["pause_until_later"],
        tenant=DEFAULT_TENANT,
        consumer=consumer,
        pause_s=min(pause_s, PAUSE_S_MAX),
        why=storable_reason(why),
    )
