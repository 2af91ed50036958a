"""The engine's serializer: JSON and a few tagged types that are listed here. Nothing is imported by name, no pickle."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from dbos import Serializer

_TAG = "$type"
_ERRORS: tuple[type[Exception], ...] = (ValueError, TypeError, RuntimeError, KeyError, LookupError, TimeoutError)


class RecordedError(Exception):
    """An error that was recorded under a class that is not on the list: its name and its words are kept."""


class TypedJson(Serializer):
    """Readable with SQL: `output::jsonb`. Raises TypeError for anything that is not on the list."""

    def name(self) -> str:
        return "surefoot_json"

    def serialize(self, data: Any) -> str:
        return json.dumps(_dump(data), separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def deserialize(self, serialized_data: str) -> Any:
        return _load(json.loads(serialized_data))


def _dump(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_dump(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        if all(isinstance(key, str) for key in items) and _TAG not in items:
            return {str(key): _dump(item) for key, item in items.items()}
        return {_TAG: "map", "items": [[_dump(key), _dump(item)] for key, item in items.items()]}
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [_dump(item) for item in cast("tuple[object, ...]", value)]}
    if isinstance(value, datetime):
        return {_TAG: "datetime", "text": value.isoformat()}
    if isinstance(value, Decimal):
        return {_TAG: "decimal", "text": str(value)}
    if isinstance(value, BaseException):
        return {_TAG: "error", "class": type(value).__name__, "text": str(value)}
    raise TypeError(f"{type(value).__name__} is not on the list of recorded types: return JSON instead")


def _load(value: object) -> object:
    if isinstance(value, list):
        return [_load(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    match fields.get(_TAG):
        case None:
            return {key: _load(item) for key, item in fields.items()}
        case "map":
            return {_load(key): _load(item) for key, item in fields["items"]}
        case "tuple":
            return tuple(_load(item) for item in fields["items"])
        case "datetime":
            return datetime.fromisoformat(fields["text"])
        case "decimal":
            return Decimal(fields["text"])
        case "error":
            known = next((error for error in _ERRORS if error.__name__ == fields["class"]), None)
            return known(fields["text"]) if known else RecordedError(f"{fields['class']}: {fields['text']}")
        case other:
            raise ValueError(f"recorded type {other!r} is not on the list")
