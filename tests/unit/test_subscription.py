"""A subscription says at once what is wrong with it, and two of one name are refused."""

from typing import Any

import pytest

from outbox import Delivered, LocalConsumer, Outcome, Subscription, unique_subscriptions
from transactions import InvalidInput
from transactions.outbox import Delivery


class Takes:
    async def take(self, delivery: Delivery) -> Outcome:
        return Delivered()


async def body(session: object, delivery: Delivery) -> None: ...


GOOD: dict[str, Any] = {"name": "tickets", "consumer": Takes(), "topics": ["ticket.opened"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "a name has 1 to 200 letters, digits"),
        ({"name": "a b"}, "a name has 1 to 200 letters, digits"),
        ({"name": "a" * 201}, "a name has 1 to 200 letters, digits"),
        ({"name": "effect"}, "is not 'effect', which is Surefoot's own"),
        ({"name": None}, "a name has 1 to 200 letters, digits"),
        ({"consumer": object()}, "its consumer is a object without `take`"),
        ({"consumer": lambda delivery: None}, "its consumer is a function without `take`"),
        ({"topics": "ticket.opened"}, r"topics is one text: write topics=\['ticket.opened'\]"),
        ({"topics": []}, "name at least one topic"),
        ({"topics": ["a", "a"]}, "each of them once"),
        ({"topics": ["a\0"]}, "topic 'a.x00'"),
        ({"topics": ["effect"]}, "topic 'effect'"),
        ({"in_flight_max": 0}, "in_flight_max=0: give a whole number from 1 to 10000"),
        ({"in_flight_max": 1.5}, "in_flight_max=1.5"),
        ({"in_flight_max": True}, "in_flight_max=True"),
        ({"per_second_max": 0}, "per_second_max=0: give a number above 0"),
        ({"per_second_max": float("nan")}, "per_second_max=nan"),
        ({"per_second_max": float("inf")}, "per_second_max=inf"),
        ({"per_second_max": "5"}, "per_second_max='5'"),
    ],
)
def test_what_is_wrong_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        Subscription(**{**GOOD, **changes})
    assert str(refused.value).endswith((".", "`."))


def test_what_is_right_is_kept() -> None:
    kept = Subscription(**GOOD, in_flight_max=3, per_second_max=0.5, passes_dead=True)
    assert (kept.in_flight_max, kept.per_second_max, kept.passes_dead) == (3, 0.5, True)
    assert Subscription("local", LocalConsumer(body), topics=("a", "run.finished")).in_flight_max is None


def test_two_of_one_name_are_refused_and_one_twice_is_one() -> None:
    one = Subscription(**GOOD)
    assert unique_subscriptions([one, one]) == [one]
    with pytest.raises(InvalidInput, match="Two consumers are called 'tickets': rename one"):
        unique_subscriptions([one, Subscription(**GOOD)])
