"""Where webhooks arrive: a server on the loop of a test, whose every answer is the test's."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"taken":"a"}'


@dataclass(frozen=True)
class Request:
    line: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """A server that keeps every request and answers the next of `answers`, the last one again and again."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[bytes | Callable[[Request, asyncio.StreamWriter], Awaitable[None]]] = [OK]
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            line = (await reader.readline()).decode().strip()
            headers: dict[str, str] = {}
            while header := (await reader.readline()).decode().strip():
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            request = Request(line, headers, await reader.readexactly(int(headers["content-length"])))
            self.requests.append(request)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(request, writer)
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def listening(
        self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self.serve, host, port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
