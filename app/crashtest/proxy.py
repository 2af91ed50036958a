"""A loopback TCP proxy between a case's workers and the services they are told of: it loses responses.

What a worker sends arrives and is done; the first byte of the answer is not handed on, and the connection is cut.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import SplitResult, urlsplit

HOST = "127.0.0.1"
_LOOPBACK = frozenset({HOST, "localhost", "::1"})
_CHUNK_BYTES = 65536


@dataclass(slots=True)
class LostResponses:
    """`numbers`: which of a case's connections to services, counted from 1, lose their answer. `struck`: did lately."""

    numbers: frozenset[int]
    connections: int = 0
    struck: list[int] = field(default_factory=list[int])


@asynccontextmanager
async def through(lost: LostResponses, env: Mapping[str, str]) -> AsyncGenerator[Mapping[str, str]]:
    """The environment with each URL of a loopback service led through a proxy; as it is when nothing is to be lost."""
    async with AsyncExitStack() as stack:
        routed = dict(env)
        for name, value in env.items() if lost.numbers else ():
            parts = urlsplit(value)
            port = _loopback_port(parts)
            if port is None:
                continue
            assert parts.hostname is not None
            server = await asyncio.start_server(partial(_relay, lost, parts.hostname, port), HOST, 0)
            stack.callback(server.close)
            routed[name] = parts._replace(netloc=f"{HOST}:{server.sockets[0].getsockname()[1]}").geturl()
        yield routed


def _loopback_port(parts: SplitResult) -> int | None:
    with contextlib.suppress(ValueError):  # a colon does not make a URL
        if parts.scheme and parts.hostname in _LOOPBACK:
            return parts.port
    return None


async def _relay(
    lost: LostResponses, host: str, port: int, client: asyncio.StreamReader, answer: asyncio.StreamWriter
) -> None:
    """One connection. What is held is dropped when the client is gone."""
    lost.connections += 1
    number = lost.connections
    with contextlib.suppress(ConnectionError):
        upstream, request = await asyncio.open_connection(host, port)
        sending = asyncio.create_task(_pump(client, request))
        try:
            if number in lost.numbers:
                await upstream.read(1)
                lost.struck.append(number)
                answer.transport.abort()
            else:
                await _pump(upstream, answer)
        finally:
            sending.cancel()
            request.transport.abort()
    answer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until the source ends, which the sink is told, or either is gone."""
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
