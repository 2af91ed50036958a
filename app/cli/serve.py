"""`surefoot serve` (API and worker) and `surefoot worker` (worker alone)."""

import asyncio
import logging
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer
import uvicorn
from fastapi import FastAPI

from app.cli.leaving import Leaving, end
from app.cli.session import fail, opened
from app.machine import is_loopback
from app.surefoot import Surefoot
from app.web.api import build_health
from transactions.access import require_api

_IN_FLIGHT_S = 2  # for requests that are answered when everything else is over

Host = Annotated[str, typer.Option(help="address to listen on; only loopback while there are no tokens")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="port to listen on; 0 picks a free one")]
HealthPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="answer /healthz and /readyz on this port; 0 picks a free one")
]
HealthHost = Annotated[str, typer.Option(help="address that --health-port listens on")]
Worker = Annotated[bool, typer.Option(help="--no-worker: the API alone; runs go on where `surefoot worker` does")]
Reload = Annotated[bool, typer.Option(help="restart when a Python file changes (development)")]


def serve(host: Host = "127.0.0.1", port: Port = 8080, reload: Reload = False, worker: Worker = True) -> None:
    """Serve the API, and by default run a worker in this process."""
    _log()
    with opened() as surefoot:
        if not is_loopback(host) and asyncio.run(_is_open(surefoot)):
            fail(f"{host} is not a loopback address, and there are no tokens yet: run `surefoot tokens create` first.")
        if reload and not worker:
            fail("--reload is for development, with a worker in the process: leave --no-worker out.")
        if reload:  # what is wrong is told here, once, and not at every restart
            _listen(host, port).close()
            uvicorn.run("app.cli.reloaded:build", factory=True, host=host, port=port, reload=True, log_level="warning")
            return
        leaving = _leaving(surefoot)
        server = _Server(surefoot.web, _listen(host, port))
        if worker:
            leaving.run(_work(surefoot, leaving, "surefoot serves {where} with worker {worker}", server))
        else:
            leaving.run(_serve_alone(surefoot, leaving, server))
    end()


def worker(health_port: HealthPort = None, health_host: HealthHost = "0.0.0.0") -> None:  # noqa: S104  for probes
    """Run a worker without the API."""
    _log()
    with opened() as surefoot:
        leaving = _leaving(surefoot)
        if health_port is None:
            leaving.run(_work(surefoot, leaving, "surefoot works as {worker}"))
        else:
            server = _Server(build_health(surefoot), _listen(health_host, health_port, "--health-port"))
            leaving.run(_work(surefoot, leaving, "surefoot works as {worker}, health on {where}", server))
    end()


class _Server(uvicorn.Server):
    """One that leaves signals to us: it goes on answering while the worker drains."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=_IN_FLIGHT_S)
        super().__init__(config)
        self._listener = listener

    @property
    def where(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def answer(self) -> None:
        """Until it is told to stop, and what is in flight has been answered."""
        await self.serve(sockets=[self._listener])


def _leaving(surefoot: Surefoot) -> Leaving:
    def abandon() -> None:
        if surefoot.worker is not None:
            surefoot.worker.abandon()

    return Leaving(surefoot.settings.drain_s, abandon)


async def _is_open(surefoot: Surefoot) -> bool:
    try:
        return await surefoot.is_open()
    finally:
        await surefoot.close()


async def _work(surefoot: Surefoot, leaving: Leaving, ready: str, server: _Server | None = None) -> None:
    """Work until the process is asked to leave, and drain; a server answers till the end."""
    async with surefoot.lifespan():
        assert surefoot.worker is not None
        print(ready.format(where=server and server.where, worker=surefoot.worker.worker_id), flush=True)
        answering = set[asyncio.Task[None]]() if server is None else {asyncio.create_task(server.answer())}
        await asyncio.wait({asyncio.create_task(leaving.asked()), *answering}, return_when=asyncio.FIRST_COMPLETED)
        await surefoot.worker.stop()
        if server is not None:
            server.should_exit = True
            await asyncio.gather(*answering)


async def _serve_alone(surefoot: Surefoot, leaving: Leaving, server: _Server) -> None:
    try:
        await require_api(surefoot.database_url)
        print(f"surefoot serves {server.where} without a worker", flush=True)
        answering = asyncio.create_task(server.answer())
        await asyncio.wait({asyncio.create_task(leaving.asked()), answering}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await answering
    finally:
        await surefoot.close()


def _listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket, or one sentence about why not."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        fail(
            f"Port {port} on {host} cannot be used ({error.strerror}): stop what uses it, or choose another ({option})."
        )
    return listener


def _log() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
