"""The engine's serializer: what is on its list comes back equal, nothing else goes in, nothing is imported by name."""

import json
import pickle
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.serializer import RecordedError, TypedJson

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.datetimes(timezones=st.one_of(st.none(), ZONES)),
    st.decimals(allow_nan=False),
)
KEYS: st.SearchStrategy[Hashable] = st.one_of(TEXT, st.integers(), st.booleans(), st.tuples(st.integers(), TEXT))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(KEYS, inner),
        st.dictionaries(st.sampled_from(["$type", "items", "text", "a"]), inner),
    ),
    max_leaves=12,
)


def through(value: object) -> Any:
    return TypedJson().deserialize(TypedJson().serialize(value))


def same(one: object, other: object) -> bool:
    """Equal, and of equal types all the way down: 1, 1.0 and True are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        assert isinstance(other, dict)
        return same(list(one.items()), list(other.items()))
    if isinstance(one, datetime):
        assert isinstance(other, datetime)
        return one == other and one.utcoffset() == other.utcoffset()
    return one == other


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_what_is_on_the_list_comes_back_equal(value: object) -> None:
    assert same(through(value), value)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_the_text_is_json_that_sql_can_read(value: object) -> None:
    text = TypedJson().serialize(value)
    assert isinstance(json.loads(text), object)
    text.encode()


def test_the_comparison_itself_tells_types_apart() -> None:
    assert not same(1, True)
    assert not same([1], [1.0])
    assert not same((1,), [1])
    assert not same(datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))))


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Point(1),
        b"bytes",
        {1, 2},
        frozenset({1}),
        Point,
        len,
        1j,
        (n for n in ()),
        {"a": [Point(1)]},
        {b"k": 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_on_the_list_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="is not on the list of recorded types: return JSON instead"):
        TypedJson().serialize(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_a_number_that_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        TypedJson().serialize(value)


class Boom:
    """Pickled, it would run code when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was read",))


def test_a_pickle_is_neither_written_nor_read() -> None:
    with pytest.raises(TypeError):
        TypedJson().serialize(Boom())
    with pytest.raises(ValueError):
        TypedJson().deserialize(pickle.dumps(Boom(), protocol=0).decode())


@pytest.mark.parametrize(
    "text",
    [
        '{"$type":"os.system","args":["true"]}',
        '{"$type":"object"}',
        '{"$type":["map"]}',
        '{"$type":7}',
    ],
)
def test_a_type_that_is_not_on_the_list_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="is not on the list"):
        TypedJson().deserialize(text)


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("away"), TimeoutError("late"), LookupError("gone")])
def test_a_known_error_comes_back_as_its_class(error: Exception) -> None:
    back = through(error)
    assert (type(back), str(back)) == (type(error), str(error))


def test_an_unknown_error_keeps_its_name_and_words() -> None:
    class Odd(Exception):
        pass

    back = through(Odd("why"))
    assert type(back) is RecordedError
    assert str(back) == "Odd: why"


def test_money_and_times_keep_what_they_say() -> None:
    value = {"price": Decimal("1.10"), "at": datetime(2026, 3, 29, 2, 30, tzinfo=UTC), "pair": (1, "a")}
    assert same(through(value), value)
    assert str(through(Decimal("1.10"))) == "1.10"
