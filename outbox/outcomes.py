"""What a consumer is, and what it may answer."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from transactions import Database
from transactions.outbox import Delivery


@dataclass(frozen=True, slots=True)
class Delivered:
    """The consumer took it; `receipt` is its answer, at most 64 KiB of JSON."""

    receipt: JsonValue = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Not now: tried again after a pause that doubles, or never when `final`.

    again_s: seconds that the other side asked to be left alone (`Retry-After`); the pause is not shorter, and no worker
    sends this consumer anything meanwhile (for an hour at most).
    """

    detail: str
    final: bool = False
    again_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Settled:
    """The consumer has settled the delivery in a commit of its own; `delivered`: the next one of its key may go."""

    delivered: bool = False


Outcome = Delivered | Undelivered | Settled


class Consumer(Protocol):
    """Takes entries of one name, idempotently by `delivery.entry_id`. An exception counts as Undelivered."""

    async def take(self, delivery: Delivery) -> Outcome: ...


@runtime_checkable
class OnDatabase(Protocol):
    """A consumer that writes to the database it gets its entries from: the worker puts that in."""

    def on(self, database: Database) -> Consumer:
        """The same, on this database unless it has one."""
        ...
