"""What people say of what they do: within limits, and of a form that Postgres can store."""

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
