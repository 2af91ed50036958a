"""Loopback TCP proxies between a case's workers and the services they are told of: what they answer goes wrong."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, urlsplit

from app.crashtest.faults import ConnectionKind

HOST = "127.0.0.1"
SLOW_S = 1.0  # less than any attempt's deadline
_LOOPBACK = frozenset({HOST, "localhost", "::1"})
_CHUNK_BYTES = 65536
_HTTP = "HTTP/1.1 {}\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# What is said instead of the answer, by protocol: a limit that nothing passed, or an error though it was done.
_SAID: Mapping[tuple[str, ConnectionKind], bytes] = MappingProxyType(
    {
        ("http", "rate-limited"): _HTTP.format("429 Too Many Requests").encode(),
        ("http", "server-error"): _HTTP.format("500 Internal Server Error").encode(),
        ("smtp", "rate-limited"): b"421 4.7.0 too many connections, try again later\r\n",
        ("smtp", "server-error"): b"451 4.3.0 local error in processing\r\n",
    }
)
_GARBAGE = b"\x00\xffHTTP/9 nonsense \x80\r\n\r\n"
_END_OF_MAIL = b"\r\n.\r\n"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


@dataclass(slots=True)
class Services:
    """`kinds`: what becomes of which of a case's connections, counted from 1. `struck`: those it happened to lately.

    `opened`: nobody is refused any more.
    """

    kinds: Mapping[int, ConnectionKind]
    connections: int = 0
    struck: list[int] = field(default_factory=list[int])
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.kinds.get(1) != "refused":
            self.opened.set()

    def open(self) -> None:
        """Somebody was refused: from now on all are served."""
        if not self.opened.is_set():
            self.struck.append(1)
            self.opened.set()


@asynccontextmanager
async def through(services: Services, env: Mapping[str, str]) -> AsyncGenerator[Mapping[str, str]]:
    """The environment with each URL of a loopback service led through a proxy."""
    async with AsyncExitStack() as stack:
        routed = dict(env)
        for name, value in env.items():
            parts = urlsplit(value)
            port = _loopback_port(parts)
            if port is None:
                continue
            assert parts.hostname is not None
            protocol = "smtp" if parts.scheme.startswith("smtp") else "http"
            proxy = await _Proxy.start(partial(_serve, services, protocol, parts.hostname, port), services.opened)
            stack.push_async_callback(proxy.close)
            routed[name] = parts._replace(netloc=f"{HOST}:{proxy.port}").geturl()
        yield routed


def _loopback_port(parts: SplitResult) -> int | None:
    with contextlib.suppress(ValueError):  # a colon does not make a URL
        if parts.scheme and parts.hostname in _LOOPBACK:
            return parts.port
    return None


async def _serve(services: Services, protocol: str, host: str, port: int, client: Reader, answer: Writer) -> None:
    """One connection to a service."""
    services.connections += 1
    number = services.connections
    kind = services.kinds.get(number)
    if kind in ("reset", "silence", "rate-limited"):
        services.struck.append(number)
        await _refuse(kind, protocol, client, answer)
        return
    upstream, request = await asyncio.open_connection(host, port)
    try:
        await _exchange(services, number, protocol, (client, answer), (upstream, request))
    finally:
        request.transport.abort()


async def _refuse(kind: ConnectionKind, protocol: str, client: Reader, answer: Writer) -> None:
    """Nothing reaches the service."""
    if kind == "reset":
        answer.transport.abort()
        return
    if kind == "rate-limited":
        if protocol == "http":
            await client.readuntil(b"\r\n\r\n")
        answer.write(_SAID[protocol, kind])
        await answer.drain()
    while await client.read(_CHUNK_BYTES):
        pass


async def _exchange(
    services: Services, number: int, protocol: str, near: tuple[Reader, Writer], far: tuple[Reader, Writer]
) -> None:
    """Hand on in both directions, until something was done there; its answer is what goes wrong."""
    (client, answer), (upstream, request) = near, far
    kind = services.kinds.get(number)
    done = asyncio.Event()
    if protocol == "http":
        done.set()  # by the first byte of its answer it is
    sending = asyncio.create_task(_pump(client, request, done))
    try:
        while data := await upstream.read(_CHUNK_BYTES):
            if kind not in (None, "refused") and done.is_set():
                services.struck.append(number)
                if kind == "late":
                    await sending  # until the client has given up
                if kind in ("lost-response", "late"):
                    answer.transport.abort()
                    return
                if kind != "slow":
                    answer.write(_SAID.get((protocol, kind), _GARBAGE))
                    await answer.drain()
                    return
                await asyncio.sleep(SLOW_S)
                kind = None
            answer.write(data)
            await answer.drain()
        if answer.can_write_eof():
            answer.write_eof()
    finally:
        sending.cancel()


async def _pump(source: Reader, sink: Writer, done: asyncio.Event) -> None:
    """Hand on until the source ends, which the sink is told, or either is gone; `done` at the end of a mail's text."""
    tail = b""
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK_BYTES):
            tail = (tail + data)[-len(_END_OF_MAIL) :]
            if tail == _END_OF_MAIL:
                done.set()
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


@dataclass(slots=True)
class _Proxy:
    """A listener on loopback that knows its connections, so that none outlives it."""

    port: int
    _listening: "asyncio.Task[asyncio.Server]"
    _tasks: "set[asyncio.Task[None] | None]"

    @classmethod
    async def start(cls, serve: "partial[Coroutine[Any, Any, None]]", opened: asyncio.Event) -> "_Proxy":
        """Until it is `opened` its port is taken, and refuses."""
        tasks: set[asyncio.Task[None] | None] = set()

        async def served(client: Reader, answer: Writer) -> None:
            tasks.add(asyncio.current_task())
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await serve(client, answer)
            answer.close()
            tasks.discard(asyncio.current_task())

        taken = socket.socket()
        taken.bind((HOST, 0))

        async def listen() -> asyncio.Server:
            await opened.wait()
            return await asyncio.start_server(served, sock=taken)

        listening = asyncio.create_task(listen())
        if opened.is_set():
            await listening
        return cls(taken.getsockname()[1], listening, tasks)

    async def close(self) -> None:
        if self._listening.done():
            self._listening.result().close()
        self._listening.cancel()
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
