"""`surefoot serve` (API and worker) and `surefoot worker` (worker alone)."""

import asyncio
import logging
import signal
import socket
from typing import Annotated

import typer
import uvicorn

from app.cli.session import fail, opened
from app.machine import is_loopback
from app.surefoot import Surefoot
from transactions.access import require_api

Host = Annotated[str, typer.Option(help="address to listen on; only loopback while there are no tokens")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="port to listen on; 0 picks a free one")]
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
            _check_port(host, port).close()
            uvicorn.run("app.cli.reloaded:build", factory=True, host=host, port=port, reload=True, log_level="warning")
            return
        listener = _check_port(host, port)
        config = uvicorn.Config(surefoot.web, log_level="warning", lifespan="off", timeout_graceful_shutdown=5)
        asyncio.run((_serve if worker else _serve_alone)(surefoot, uvicorn.Server(config), listener))


async def _is_open(surefoot: Surefoot) -> bool:
    try:
        return await surefoot.is_open()
    finally:
        await surefoot.close()


async def _serve(surefoot: Surefoot, server: uvicorn.Server, listener: socket.socket) -> None:
    # The server hands a signal on when it has stopped: without a handler of ours that would end us before the drain.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)
    async with surefoot.lifespan():
        assert surefoot.worker is not None
        host, port = listener.getsockname()[:2]
        print(f"surefoot serves http://{host}:{port} with worker {surefoot.worker.worker_id}", flush=True)
        await server.serve(sockets=[listener])


async def _serve_alone(surefoot: Surefoot, server: uvicorn.Server, listener: socket.socket) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # as above
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)
    try:
        await require_api(surefoot.database_url)
        host, port = listener.getsockname()[:2]
        print(f"surefoot serves http://{host}:{port} without a worker", flush=True)
        await server.serve(sockets=[listener])
    finally:
        await surefoot.close()


def worker() -> None:
    """Run a worker without the API."""
    _log()
    with opened() as surefoot:
        asyncio.run(_work(surefoot))


async def _work(surefoot: Surefoot) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with surefoot.lifespan():
        assert surefoot.worker is not None
        print(f"surefoot works as {surefoot.worker.worker_id}", flush=True)
        await stopped.wait()


def _check_port(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence about why not."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        fail(f"Port {port} on {host} cannot be used ({error.strerror}): stop what uses it, or choose another (--port).")
    return listener


def _log() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
