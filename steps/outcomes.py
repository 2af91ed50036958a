"""What one attempt came to. A timeout after sending is unknown, never failed; a refused connection is never unknown."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import httpx
from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from steps.kinds import NotSent, Refused
from transactions import storable_reason

T = TypeVar("T")
_NOTHING_SENT = (
    NotSent,
    ConnectionRefusedError,
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)
_MAY_HAVE_HAPPENED = frozenset({408, 409, 425})
_TOO_MANY = 429
_PASSING = frozenset({408, 425, _TOO_MANY, 500, 502, 503, 504})
_READ_PAUSES_S = (0.2, 1.0, 4.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`answered` carries the result as JSON; the others a reason in words."""

    kind: Literal["answered", "not_sent", "refused", "unknown"]
    result: JsonValue = None
    reason: str = ""


async def attempt(call: Callable[[], Awaitable[JsonValue]], *, timeout_s: float) -> Outcome:
    """Make one attempt and say what it came to."""
    try:
        async with asyncio.timeout(timeout_s):
            return Outcome("answered", await call())
    except _NOTHING_SENT as error:
        return Outcome("not_sent", reason=_words(error))
    except (Refused, ModelRetry, ToolFailed) as error:
        return Outcome("refused", reason=_words(error))
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status == _TOO_MANY:
            return Outcome("not_sent", reason=_words(error))
        if 400 <= status < 500 and status not in _MAY_HAVE_HAPPENED:
            return Outcome("refused", reason=_words(error))
        return Outcome("unknown", reason=_words(error))
    except TimeoutError:
        return Outcome("unknown", reason=f"no answer within {timeout_s:.1f} s")
    except Exception as error:
        return Outcome("unknown", reason=_words(error))


async def read_freely(call: Callable[[], Awaitable[T]]) -> T:
    """Read what may be read as often as one likes: once more after each pause, while it is the way there that fails.

    Raises what the last try raised.
    """
    for pause_s in _READ_PAUSES_S:
        try:
            return await call()
        except (ConnectionError, TimeoutError, httpx.TransportError):
            pass
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in _PASSING:
                raise
        await asyncio.sleep(pause_s)
    return await call()


def _words(error: BaseException) -> str:
    return storable_reason(f"{type(error).__name__}: {error}".rstrip(": "))


async def call_body(body: Callable[..., Any], first: object, arguments: dict[str, Any]) -> Any:
    """Call a tool's body; a sync one in a thread."""
    if inspect.iscoroutinefunction(body):
        return await body(first, **arguments)
    return await asyncio.to_thread(body, first, **arguments)
