"""One JSON text for one value: the form that is hashed, compared and stored.

It is a form that Postgres gives back as it was: where Python writes an exponent, a `jsonb` has digits, and it has no
minus zero. Postgres stores neither a NUL character nor half of a surrogate pair. What a person or a program of ours
gives with one is refused in words. What others have said cannot be sent back, and a fact must not be lost for it: there
they are replaced by U+FFFD.
"""

import hashlib
import json
import re
from decimal import Decimal
from typing import cast

from pydantic import JsonValue

REASON_CHARS_MAX = 2000
UNSTORABLE = "a NUL character or half of a surrogate pair, which Postgres cannot store"
_REPLACEMENT = "\ufffd"
_EXPONENT, _MINUS_ZERO = "e+", "-0.0"
_ALONE = re.compile("[\x00\ud800-\udfff]")
_NUL_IN_JSON = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def canonical_json(value: JsonValue) -> str:
    """The canonical text: sorted keys, no spaces, no NaN.

    Raises ValueError for NaN, infinities and what is nested too deeply to be read again.
    """
    try:
        text = _text(value)
        return _text(_as_given_back(value)) if _EXPONENT in text or _MINUS_ZERO in text else text
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(text: str) -> JsonValue:
    """What a text says that comes from elsewhere. Raises ValueError, also for NaN and what is nested too deeply."""
    try:
        return cast(JsonValue, json.loads(text, parse_constant=_no_json))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_storable(value: JsonValue) -> bool:
    """Whether Postgres can keep it as it is. Raises ValueError as `canonical_json` does."""
    text = canonical_json(value)
    return not (_NUL_IN_JSON.search(text) or _ALONE.search(text))


def storable_json(value: JsonValue) -> str:
    """The canonical text of what others have said; NaN and infinities, which JSON does not have, are null."""
    try:
        text = canonical_json(value)
    except ValueError:
        text = _without_what_json_has_not(value)
    return _ALONE.sub(_REPLACEMENT, _NUL_IN_JSON.sub(rf"\1{_REPLACEMENT}", text))


def as_storable(value: JsonValue) -> JsonValue:
    """What others have said, as Postgres can keep it."""
    try:
        if is_storable(value):
            return value
    except ValueError:
        pass
    return cast(JsonValue, json.loads(storable_json(value)))


def storable_reason(text: str) -> str:
    """What others have said, or an error of theirs, in at most REASON_CHARS_MAX characters."""
    return _ALONE.sub(_REPLACEMENT, text)[:REASON_CHARS_MAX]


def request_hash(value: JsonValue) -> str:
    """SHA-256 of the canonical text, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _without_what_json_has_not(value: JsonValue) -> str:
    try:
        return canonical_json(json.loads(json.dumps(value), parse_constant=lambda _: None))
    except RecursionError:
        return canonical_json("(nested too deeply to be kept)")


def _text(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _as_given_back(value: JsonValue) -> JsonValue:
    """With every number as it is read from a `jsonb` that was written from it."""
    if isinstance(value, dict):
        return {name: _as_given_back(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_given_back(each) for each in value]
    if isinstance(value, float) and _EXPONENT in (written := repr(value)):
        return int(Decimal(written))
    return 0.0 if value == 0 and isinstance(value, float) else value


def _no_json(name: str) -> JsonValue:
    raise ValueError(f"{name} is no JSON")
