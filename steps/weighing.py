"""How large a result is, found out without copying what is far too large."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from pydantic import JsonValue

from transactions import canonical_json
from transactions.artifacts import ARTIFACT_BYTES_MAX

_HEAD_CHARACTERS = 2_000
_UNSIZED_BYTES = 1  # at least, of a number, true, false or null


class TooLarge(ValueError):
    """A result that is kept nowhere; the message says how large it may be."""

    def __init__(self) -> None:
        super().__init__(f"returned over {ARTIFACT_BYTES_MAX} bytes: write it where it belongs and return a reference")


@dataclass(frozen=True, slots=True)
class Large:
    """A result that is to be an artifact; `head` is shown in its place."""

    TEXT: ClassVar[str] = "text/plain; charset=utf-8"
    JSON: ClassVar[str] = "application/json"

    content: bytes
    media_type: str
    head: str

    @classmethod
    def of(cls, content: bytes, media_type: str) -> "Large":
        """As it was kept."""
        return cls(content, media_type, content[: 4 * _HEAD_CHARACTERS].decode(errors="ignore")[:_HEAD_CHARACTERS])


def refuse_too_large(value: object) -> None:
    """Before anything is made of it. Raises TooLarge for a text or bytes above the limit of an artifact."""
    if isinstance(value, str | bytes | bytearray) and len(value) > ARTIFACT_BYTES_MAX:
        raise TooLarge


def large(value: JsonValue, *, inline_bytes: int | None) -> Large | None:
    """What is to be kept as an artifact; None for what fits. inline_bytes: None, whatever is no artifact fits.

    Raises TooLarge, before its text is made.
    """
    _refuse_heavy(value)
    text = canonical_json(value)
    whole = text.encode()
    content, media_type = (value.encode(), Large.TEXT) if isinstance(value, str) else (whole, Large.JSON)
    if len(content) > ARTIFACT_BYTES_MAX:
        raise TooLarge
    if inline_bytes is None or len(whole) <= inline_bytes:
        return None
    return Large.of(content, media_type)


def _refuse_heavy(value: JsonValue) -> None:
    """By a size that it surely has, and no further than to the limit."""
    left, waiting = ARTIFACT_BYTES_MAX, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            left -= len(one)
        elif isinstance(one, Mapping):
            left -= sum(map(len, one))
            waiting.extend(one.values())
        elif isinstance(one, list):
            left -= len(one)
            waiting.extend(cast("list[JsonValue]", one) if left >= 0 else ())
        else:
            left -= _UNSIZED_BYTES
        if left < 0:
            raise TooLarge
