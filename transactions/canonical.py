"""One JSON text for one value: the form that is hashed, compared and stored."""

import hashlib
import json

from pydantic import JsonValue


def canonical_json(value: JsonValue) -> str:
    """The canonical text: sorted keys, no spaces, no NaN. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def request_hash(value: JsonValue) -> str:
    """SHA-256 of the canonical text, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
