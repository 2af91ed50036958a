"""One JSON text for one value: the form that is hashed, compared and stored.

Postgres stores neither a NUL character nor half of a surrogate pair. What a person or a program of ours gives with one
is refused in words. What others have said cannot be sent back, and a fact must not be lost for it: there they are
replaced by U+FFFD.
"""

import hashlib
import json
import re

from pydantic import JsonValue

REASON_CHARS_MAX = 2000
_REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NUL_IN_JSON = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def canonical_json(value: JsonValue) -> str:
    """The canonical text: sorted keys, no spaces, no NaN. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def storable_json(value: JsonValue) -> str:
    """The canonical text of what others have said; NaN and infinities, which JSON does not have, are null."""
    try:
        text = canonical_json(value)
    except ValueError:
        text = canonical_json(json.loads(json.dumps(value), parse_constant=lambda _: None))
    return _UNSTORABLE.sub(_REPLACEMENT, _NUL_IN_JSON.sub(rf"\1{_REPLACEMENT}", text))


def storable_reason(text: str) -> str:
    """What others have said, or an error of theirs, in at most REASON_CHARS_MAX characters."""
    return _UNSTORABLE.sub(_REPLACEMENT, text)[:REASON_CHARS_MAX]


def request_hash(value: JsonValue) -> str:
    """SHA-256 of the canonical text, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
