"""What people say of what they do: within limits, and of a form that Postgres can store."""

from pydantic import JsonValue

from transactions.canonical import UNSTORABLE, canonical_json, is_storable
from transactions.errors import InvalidInput

_REASON_CHARACTERS_MAX = 4000
_NAME_CHARACTERS_MAX = 200


def check_words(by: str, reason: str | None) -> None:
    """Raises InvalidInput."""
    if not 1 <= len(by.strip()) <= _NAME_CHARACTERS_MAX or len(by) > _NAME_CHARACTERS_MAX:
        raise InvalidInput(f"Say who decides, in 1 to {_NAME_CHARACTERS_MAX} characters.")
    if reason is not None and len(reason) > _REASON_CHARACTERS_MAX:
        raise InvalidInput(
            f"The reason has {len(reason)} characters; the limit is {_REASON_CHARACTERS_MAX}: shorten it."
        )
    if "\x00" in by or (reason and "\x00" in reason):
        raise InvalidInput("A name or reason contains a NUL character, which Postgres cannot store: remove it.")


def checked_json(what: str, value: JsonValue, *, bytes_max: int) -> str:
    """The canonical text of what they give. Raises InvalidInput; `what` names it."""
    try:
        text, storable = canonical_json(value), is_storable(value)
    except ValueError as error:
        raise InvalidInput(f"The {what} is not JSON ({error}): correct it.") from error
    if not storable:
        raise InvalidInput(f"The {what} contains {UNSTORABLE}: remove it.")
    if len(text.encode()) > bytes_max:
        raise InvalidInput(f"The {what} is over {bytes_max} bytes: give a reference to it instead.")
    return text
