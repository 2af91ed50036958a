"""A worker's line to the database: all its connections lead through here. It can be held, and cut as by its death."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

from transactions.clones import address, rerouted

_HOST = "127.0.0.1"
_PORT = 5432
_CHUNK_BYTES = 65536


class Line:
    """Open it with `url = await line.open(...)`. What the server has when it is cut, it does; no more comes.

    While it is held nothing passes and nobody is answered, as on a network that drops packets; what was sent meanwhile
    arrives when it is released, and is dropped when it is cut.
    """

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._there: tuple[str, int] = ("", 0)
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()

    async def open(self, url: str) -> str:
        """The URL to give to a worker instead of `url`: no easier to reach for others than the server itself."""
        self._there = await address(url)
        if self._there[0].startswith("/"):
            self._folder = tempfile.TemporaryDirectory(prefix="surefoot-line-")  # for this user alone
            self._server = await asyncio.start_unix_server(self._pass, Path(self._folder.name, f".s.PGSQL.{_PORT}"))
            return rerouted(url, self._folder.name, _PORT)
        self._server = await asyncio.start_server(self._pass, _HOST, 0)
        return rerouted(url, _HOST, self._server.sockets[0].getsockname()[1])

    def hold(self) -> None:
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        """Connections end as those of a dead process do, and none is opened any more. Safe to repeat."""
        self._is_cut = True
        self._flows.set()  # for those who wait for it to end
        if self._server is not None:
            self._server.close()
        for end in [*self._ends]:
            end.transport.abort()
        if self._folder is not None:
            self._folder.cleanup()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end is gone."""
        host, port = self._there
        self._ends.add(writer)
        pumps: list[asyncio.Task[None]] = []
        try:
            await self._flows.wait()
            opening = (
                asyncio.open_unix_connection(str(Path(host, f".s.PGSQL.{port}")))
                if host.startswith("/")
                else asyncio.open_connection(host, port)
            )
            answers, requests = await opening
            self._ends.add(requests)
            if not self._is_cut:
                pumps = [asyncio.create_task(self._pump(*way)) for way in ((reader, requests), (answers, writer))]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            requests.transport.abort()
            self._ends.discard(requests)
        except OSError:
            pass  # the server is away, and the worker hears as much
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()
            self._ends.discard(writer)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                await self._flows.wait()
                if self._is_cut:
                    return
                sink.write(data)
                await sink.drain()
