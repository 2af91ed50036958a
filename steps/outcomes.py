"""What one attempt came to, as `transactions.failures` tells errors apart. A timeout after sending is no failure."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from steps.kinds import KeyConflict, NotAllowed, NotSent, Refused
from steps.spec import Unkept
from transactions import Failure, FailureClass, failures
from transactions.failures import Classify

T = TypeVar("T")
_READ_PAUSES_S = (0.2, 1.0, 4.0)
_READ_PAUSE_S_MAX = 30.0
_READ_AGAIN = frozenset({FailureClass.TRANSIENT, FailureClass.RATE_LIMITED, FailureClass.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Answered:
    """The other side's answer, as JSON."""

    result: JsonValue


async def attempt(
    call: Callable[[], Awaitable[JsonValue]],
    *,
    timeout_s: float,
    classify: Classify | None = None,
) -> Answered | Failure:
    """Make one attempt and say what it came to."""
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return Answered(await call())
    except Exception as error:
        if deadline.expired():
            return Failure(FailureClass.UNKNOWN, f"no answer within {timeout_s:.1f} s")
        return _said(error) or failures.of(error, classify=classify)


def _said(error: Exception) -> Failure | None:
    """The class that an effect's own body says it is."""
    match error:
        case NotSent():
            kind = FailureClass.TRANSIENT if error.retry_after_s is None else FailureClass.RATE_LIMITED
            return Failure(kind, failures.words(error), error.retry_after_s)
        case ModelRetry():
            return Failure(FailureClass.INVALID_INPUT, error.message)
        case Refused() | ToolFailed():
            return Failure(FailureClass.REJECTED, failures.words(error))
        case NotAllowed():
            return Failure(FailureClass.PERMISSION, failures.words(error))
        case KeyConflict():
            return Failure(FailureClass.CONFLICT, f"the other side has this key with another request: {error}")
        case Unkept():
            return Failure(FailureClass.CONFLICT, failures.words(error))
        case _:
            return None


async def read_freely(call: Callable[[], Awaitable[T]], *, classify: Classify | None = None) -> T:
    """Read what may be read as often as one likes: once more after each pause, while it is the way there that fails.

    Raises what the last try raised, and at once what is no matter of time or asks for a longer pause than 30 s.
    """
    for pause_s in _READ_PAUSES_S:
        try:
            return await call()
        except Exception as error:
            failure = failures.known(error, classify=classify)
            if failure is None or failure.kind not in _READ_AGAIN:
                raise
            pause_s = max(pause_s, failure.retry_after_s or 0.0)
            if pause_s > _READ_PAUSE_S_MAX:
                raise
        await asyncio.sleep(pause_s)
    return await call()


async def call_body(body: Callable[..., Any], first: object, arguments: dict[str, Any]) -> Any:
    """Call a tool's body; a sync one in a thread."""
    if inspect.iscoroutinefunction(body):
        return await body(first, **arguments)
    return await asyncio.to_thread(body, first, **arguments)
