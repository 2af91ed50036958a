"""What one attempt came to: unknown is never called failed, and what was never sent is never called unknown."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable

import httpx
import pytest
from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from steps import NotSent, Refused, outcomes
from steps.outcomes import Outcome, attempt, call_body, read_freely

REQUEST = httpx.Request("POST", "http://127.0.0.1:1/publications")


def status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError(str(code), request=REQUEST, response=httpx.Response(code, request=REQUEST))


TABLE: list[tuple[BaseException, str]] = [
    # Nothing left this process.
    (NotSent("no route"), "not_sent"),
    (ConnectionRefusedError("refused"), "not_sent"),
    (httpx.ConnectError("refused"), "not_sent"),
    (httpx.ConnectTimeout("slow"), "not_sent"),
    (httpx.PoolTimeout("full"), "not_sent"),
    (httpx.UnsupportedProtocol("gopher"), "not_sent"),
    (status(429), "not_sent"),
    # The other side said no.
    (Refused("no"), "refused"),
    (ModelRetry("say it better"), "refused"),
    (ToolFailed("cannot"), "refused"),
    (status(400), "refused"),
    (status(401), "refused"),
    (status(403), "refused"),
    (status(404), "refused"),
    (status(422), "refused"),
    # Something may have happened.
    (status(408), "unknown"),
    (status(409), "unknown"),
    (status(425), "unknown"),
    (status(500), "unknown"),
    (status(502), "unknown"),
    (status(503), "unknown"),
    (status(504), "unknown"),
    (status(301), "unknown"),
    (httpx.ReadTimeout("slow"), "unknown"),
    (httpx.WriteTimeout("slow"), "unknown"),
    (httpx.ReadError("reset"), "unknown"),
    (httpx.WriteError("reset"), "unknown"),
    (httpx.RemoteProtocolError("half an answer"), "unknown"),
    (ConnectionResetError("reset"), "unknown"),
    (BrokenPipeError("gone"), "unknown"),
    (ConnectionAbortedError("gone"), "unknown"),
    (TimeoutError("late"), "unknown"),
    (ssl.SSLError("handshake"), "unknown"),
    (OSError("odd"), "unknown"),
    (ValueError("the answer was not JSON"), "unknown"),
    (KeyError("id"), "unknown"),
    (AssertionError("x"), "unknown"),
    (RuntimeError(""), "unknown"),
]


def raising(error: BaseException) -> Callable[[], Awaitable[JsonValue]]:
    async def call() -> JsonValue:
        raise error

    return call


@pytest.mark.parametrize(("error", "kind"), TABLE, ids=lambda value: repr(value))
async def test_an_error_is_classified(error: BaseException, kind: str) -> None:
    outcome = await attempt(raising(error), timeout_s=5)
    assert outcome.kind == kind
    assert outcome.reason
    assert outcome.result is None


async def test_an_answer_is_kept() -> None:
    async def call() -> JsonValue:
        return {"id": 7}

    assert await attempt(call, timeout_s=5) == Outcome("answered", {"id": 7})


async def test_no_answer_in_time_is_unknown() -> None:
    async def call() -> JsonValue:
        await asyncio.sleep(30)
        return None

    outcome = await attempt(call, timeout_s=0.05)
    assert outcome.kind == "unknown"
    assert "within" in outcome.reason


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
        assert (await attempt(post(closed), timeout_s=5)).kind == "not_sent"
        assert (await attempt(post(port), timeout_s=5)).kind == "unknown"


async def test_a_reason_is_bounded() -> None:
    assert len((await attempt(raising(ValueError("x" * 10_000)), timeout_s=5)).reason) == 2000


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
