"""A subscription: a consumer by its name, the topics it gets, and how much of them at a time."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from outbox.outcomes import Consumer
from transactions import InvalidInput, outbox

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,199}")
_IN_FLIGHT_MAX = 10_000
_PER_SECOND_MAX = 10_000.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """Every entry of `topics` goes to `consumer` too, whoever writes it, once a worker with it has started.

    name: the consumer's, in the database and for people; entries keep it, so it stays the same over versions.
    in_flight_max: deliveries at once, over all workers. per_second_max: deliveries begun in a second, over all workers,
    with at most a second's worth at once. passes_dead: a dead entry does not hold back those behind it in its key.
    Raises InvalidInput at construction.
    """

    name: str
    consumer: Consumer
    topics: Sequence[str]
    in_flight_max: int | None = None
    per_second_max: float | None = None
    passes_dead: bool = False

    def __post_init__(self) -> None:
        if not _is_name(self.name) or self.name == outbox.EFFECT:
            raise InvalidInput(
                f"Subscription {self.name!r}: a name has 1 to 200 letters, digits and _ . : @ / -, and is not "
                f"{outbox.EFFECT!r}, which is Surefoot's own: choose another."
            )
        if not callable(getattr(self.consumer, "take", None)):
            raise InvalidInput(
                f"Subscription {self.name}: its consumer is a {type(self.consumer).__name__} without `take`: write "
                "`async def take(self, delivery: Delivery) -> Outcome`."
            )
        self._check_topics()
        if self.in_flight_max is not None and not _is_count(self.in_flight_max):
            raise InvalidInput(
                f"Subscription {self.name}: in_flight_max={self.in_flight_max!r}: give a whole number from 1 to "
                f"{_IN_FLIGHT_MAX}, or None for no limit."
            )
        if self.per_second_max is not None and not _is_rate(self.per_second_max):
            raise InvalidInput(
                f"Subscription {self.name}: per_second_max={self.per_second_max!r}: give a number above 0, at most "
                f"{_PER_SECOND_MAX:g}, or None for no limit."
            )

    def _check_topics(self) -> None:
        if isinstance(self.topics, str):
            raise InvalidInput(f"Subscription {self.name}: topics is one text: write topics=[{self.topics!r}].")
        if not self.topics or len(set(self.topics)) < len(self.topics):
            raise InvalidInput(f"Subscription {self.name}: name at least one topic, and each of them once.")
        for topic in self.topics:
            if not _is_name(topic) or topic == outbox.EFFECT:
                raise InvalidInput(
                    f"Subscription {self.name}: topic {topic!r}: a topic has 1 to 200 letters, digits and "
                    f"_ . : @ / -, and is not {outbox.EFFECT!r}: choose another."
                )


def unique_subscriptions(subscriptions: Sequence[Subscription]) -> list[Subscription]:
    """The subscriptions, each once. Raises InvalidInput when two different ones have the same name."""
    by_name: dict[str, Subscription] = {}
    for subscription in subscriptions:
        if by_name.setdefault(subscription.name, subscription) is not subscription:
            raise InvalidInput(f"Two consumers are called {subscription.name!r}: rename one.")
    return list(by_name.values())


def _is_name(text: object) -> bool:
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _IN_FLIGHT_MAX


def _is_rate(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 < value <= _PER_SECOND_MAX
