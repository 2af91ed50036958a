"""What one attempt came to: unknown is never called failed, and what was never sent is never called unknown."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable

import httpx
import pytest
from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from steps import KeyConflict, NotAllowed, NotSent, Refused, outcomes
from steps.outcomes import Answered, attempt, call_body, read_freely
from transactions import Failure, FailureClass

REQUEST = httpx.Request("POST", "http://127.0.0.1:1/publications")


def status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError(str(code), request=REQUEST, response=httpx.Response(code, request=REQUEST))


# What a body says itself; the table for what libraries raise is in tests/unit/test_failures.py.
SAID: list[tuple[Exception, Failure]] = [
    (NotSent("no route"), Failure(FailureClass.TRANSIENT, "NotSent: no route")),
    (NotSent("later", retry_after_s=3), Failure(FailureClass.RATE_LIMITED, "NotSent: later", 3)),
    (Refused("no"), Failure(FailureClass.REJECTED, "Refused: no")),
    (ToolFailed("cannot"), Failure(FailureClass.REJECTED, "ToolFailed: cannot")),
    (ModelRetry("say it better"), Failure(FailureClass.INVALID_INPUT, "say it better")),
    (
        KeyConflict("other body"),
        Failure(FailureClass.CONFLICT, "the other side has this key with another request: other body"),
    ),
    (NotAllowed("no right"), Failure(FailureClass.PERMISSION, "NotAllowed: no right")),
    (TimeoutError("late"), Failure(FailureClass.UNKNOWN, "TimeoutError: late")),
    (ValueError("the answer was not JSON"), Failure(FailureClass.UNKNOWN, "ValueError: the answer was not JSON")),
    (status(404), Failure(FailureClass.REJECTED, "HTTPStatusError: 404")),
]


def raising(error: BaseException) -> Callable[[], Awaitable[JsonValue]]:
    async def call() -> JsonValue:
        raise error

    return call


async def failure_of(call: Callable[[], Awaitable[JsonValue]], *, timeout_s: float = 5) -> Failure:
    outcome = await attempt(call, timeout_s=timeout_s)
    assert isinstance(outcome, Failure)
    return outcome


@pytest.mark.parametrize(("error", "failure"), SAID, ids=lambda value: repr(value))
async def test_an_error_is_classified(error: Exception, failure: Failure) -> None:
    assert await failure_of(raising(error)) == failure


async def test_what_a_user_says_of_an_error_counts_but_not_before_what_the_body_says() -> None:
    def classify(error: Exception) -> FailureClass | None:
        return FailureClass.PERMISSION if isinstance(error, ValueError | Refused) else None

    for error, kind in [(ValueError("x"), "permission"), (KeyError("x"), "unknown"), (Refused("x"), "rejected")]:
        outcome = await attempt(raising(error), timeout_s=5, classify=classify)
        assert isinstance(outcome, Failure)
        assert outcome.kind == kind


async def test_an_answer_is_kept() -> None:
    async def call() -> JsonValue:
        return {"id": 7}

    assert await attempt(call, timeout_s=5) == Answered({"id": 7})


async def test_no_answer_in_time_is_unknown() -> None:
    async def call() -> JsonValue:
        await asyncio.sleep(30)
        return None

    failure = await failure_of(call, timeout_s=0.05)
    assert failure.kind == "unknown"
    assert "within" in failure.reason


async def test_being_cancelled_is_no_outcome_of_the_attempt() -> None:
    task = asyncio.create_task(attempt(raising(asyncio.CancelledError()), timeout_s=5))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_port_nobody_listens_on_is_not_sent_and_a_connection_cut_short_is_unknown() -> None:
    """The two that matter most, with real sockets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def post(port: int) -> Callable[[], Awaitable[JsonValue]]:
        async def call() -> JsonValue:
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.post(f"http://127.0.0.1:{port}/", json={})).status_code

        return call

    async with server:
        assert (await failure_of(post(closed))).kind == "transient"
        assert (await failure_of(post(port))).kind == "unknown"


async def test_a_reason_is_bounded() -> None:
    assert len((await failure_of(raising(ValueError("x" * 10_000)))).reason) == 2000


async def test_a_plain_body_runs_in_a_thread_and_a_coroutine_in_the_loop() -> None:
    def plain(first: object, word: str) -> tuple[str, bool]:
        return word, threading.current_thread() is threading.main_thread()

    async def coroutine(first: object, word: str) -> tuple[str, bool]:
        return word, threading.current_thread() is threading.main_thread()

    assert await call_body(plain, None, {"word": "a"}) == ("a", False)
    assert await call_body(coroutine, None, {"word": "a"}) == ("a", True)


PASSING = [ConnectionResetError("reset"), TimeoutError("late"), httpx.ReadError("cut"), status(429), status(503)]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_a_read_is_done_again_while_the_way_there_fails(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_READ_PAUSES_S", (0, 0))
    left = [error, error]

    async def call() -> str:
        if left:
            raise left.pop()
        return "read"

    assert await read_freely(call) == "read"


@pytest.mark.parametrize(("error", "tries"), [(httpx.ReadError("cut"), 3), (status(404), 1), (ValueError("no"), 1)])
async def test_a_read_that_fails_otherwise_or_too_often_says_so(
    error: Exception, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_READ_PAUSES_S", (0, 0))
    tried = 0

    async def call() -> None:
        nonlocal tried
        tried += 1
        raise error

    with pytest.raises(type(error)):
        await read_freely(call)
    assert tried == tries


async def test_a_read_that_is_asked_to_wait_for_long_does_not_hold_its_worker() -> None:
    headers = {"Retry-After": "31"}
    busy = httpx.HTTPStatusError("429", request=REQUEST, response=httpx.Response(429, request=REQUEST, headers=headers))
    with pytest.raises(httpx.HTTPStatusError):
        await asyncio.wait_for(read_freely(raising(busy)), timeout=5)
