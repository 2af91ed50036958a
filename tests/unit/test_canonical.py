"""One text and one hash for one value, whatever order its keys came in."""

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transactions import canonical_json, is_storable, request_hash
from transactions.canonical import as_storable, read_json, storable_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXT, inner)),
    max_leaves=15,
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with its keys in another order."""
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    if isinstance(value, dict):
        items = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    return value


@given(JSON, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_keys_does_not_matter(value: Any, chance: random.Random) -> None:
    assert canonical_json(value) == canonical_json(shuffled(value, chance))
    assert request_hash(value) == request_hash(shuffled(value, chance))


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_the_text_says_the_value_and_reading_it_changes_nothing(value: Any) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
    assert request_hash(value) == hashlib.sha256(text.encode()).hexdigest()


@given(JSON, JSON)
@settings(max_examples=200, deadline=None)
def test_two_values_have_one_hash_only_if_they_have_one_text(one: Any, other: Any) -> None:
    assert (request_hash(one) == request_hash(other)) == (canonical_json(one) == canonical_json(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        ({"a": "é"}, {"a": "e\u0301"}),
        ("", None),
        ([[]], []),
    ],
)
def test_values_that_differ_have_different_hashes(one: Any, other: Any) -> None:
    assert request_hash(one) != request_hash(other)


def test_the_form_is_fixed_for_ever() -> None:
    """These are in databases: a change here makes every recorded request another one."""
    assert canonical_json({"b": [1, 2.5, None, True], "a": "ü\n"}) == '{"a":"ü\\n","b":[1,2.5,null,true]}'
    assert canonical_json([1e15, 1e18, 1e23, -1e17, -0.0, 1e-7]) == (
        "[1000000000000000.0,1000000000000000000,100000000000000000000000,-100000000000000000,0.0,1e-07]"
    )
    assert canonical_json(["e+", "-0.0"]) == '["e+","-0.0"]'
    assert request_hash({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


def test_what_is_nested_too_deeply_is_refused_in_both_directions() -> None:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        canonical_json(value)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json("[" * 5000 + "]" * 5000)
    assert storable_json(value) == '"(nested too deeply to be kept)"'


@pytest.mark.parametrize(
    ("text", "storable"), [("a\0", False), ("\ud800", False), ("\\u0000", True), ("\\\\u0000", True), ("\\\0", False)]
)
def test_six_characters_that_look_like_a_nul_are_none(text: str, storable: bool) -> None:
    assert is_storable({"text": text}) is storable
    assert (storable_json({"text": text}) == canonical_json({"text": text})) is storable
    assert (as_storable({"text": text}) == {"text": text}) is storable
