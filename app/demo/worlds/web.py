"""What the services that speak HTTP share: their log of requests, how they refuse, and how they are started.

A request is logged before it is looked at, so the log has also what was refused and what a kill interrupted. The
sender's pid is taken from its User-Agent, `... (pid 123)`. Times are seconds since 1970.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from app.demo.worlds.service import announce, take_place, transaction

KEY_HEADER = "Idempotency-Key"
DRAIN_TIMEOUT_S = 2
_REQUESTS = """create table if not exists requests (
    id integer primary key autoincrement, method text not null, path text not null, reference text, pid integer,
    at real not null)"""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that reached a service; `reference` and `pid` are None where it named none.

    `reference` is that of the query or the body, else the Idempotency-Key.
    """

    id: int
    method: str
    path: str
    reference: str | None
    pid: int | None
    at: float


def requests(file: Path) -> list[Request]:
    """Every request that reached the service whose file this is, oldest first."""
    with transaction(file) as connection:
        rows = connection.execute("select * from requests order by id").fetchall()
    return [Request(**dict(row)) for row in rows]


def make_service(file: Path, title: str, tables: Sequence[str]) -> FastAPI:
    """A service without routes on a file, which is made with its tables when it is not there."""
    with transaction(file, create=True) as connection:
        for table in (*tables, _REQUESTS):
            connection.execute(table)
    app = FastAPI(title=title, openapi_url=None)

    async def log(request: HttpRequest, call_next: Callable[[HttpRequest], Awaitable[Response]]) -> Response:
        reference = request.query_params.get("reference") or _reference(await request.body())
        sender = re.search(r"\(pid (\d{1,9})\)", request.headers.get("user-agent", ""))
        pid = int(sender[1]) if sender else None
        key = request.headers.get(KEY_HEADER)
        await run_in_threadpool(_log, file, request.method, request.url.path, reference or key, pid)
        return await call_next(request)

    async def refuse(_request: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        return JSONResponse({"detail": faults}, status_code=422)  # without the input, which need not be text

    app.middleware("http")(log)
    app.add_exception_handler(RequestValidationError, refuse)
    return app


def serve(name: str, make_app: Callable[[Path], FastAPI]) -> None:
    """Be the service, as the command line says, until the process is ended."""
    place = take_place(name)
    app = make_app(place.file)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_TIMEOUT_S)
    announce(place, "http")
    uvicorn.Server(config).run(sockets=[place.listener])


def _log(file: Path, method: str, path: str, reference: str | None, pid: int | None) -> None:
    with transaction(file, create=True) as connection:
        connection.execute(
            "insert into requests (method, path, reference, pid, at) values (?, ?, ?, ?, ?)",
            (method, path, reference, pid, time.time()),
        )


def _reference(body: bytes) -> str | None:
    try:
        reference = json.loads(body)["reference"]
    except (ValueError, TypeError, KeyError):
        return None
    return reference if isinstance(reference, str) else None
