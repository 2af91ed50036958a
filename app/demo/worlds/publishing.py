"""A publishing service as many are: each accepted request makes one more publication; it knows no idempotency keys.

    POST /publications {reference, title, body, sha256}   201 and the publication, without its body
    GET  /publications?reference=...                      those with the reference (all without it), oldest first
    GET  /publications/{id}                               one of them, with its body; 404 when there is none
    GET  /log                                             every request that reached the service, oldest first

A request is logged before it is looked at, so the log has also what was refused and what a kill interrupted. The
sender's pid is taken from its User-Agent, `... (pid 123)`. Times are seconds since 1970.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from app.demo.worlds.service import announce, take_place, transaction

TABLES = (
    """create table if not exists publications (
        id integer primary key autoincrement, reference text not null, title text not null, body text not null,
        sha256 text not null, published_at real not null)""",
    """create table if not exists requests (
        id integer primary key autoincrement, method text not null, path text not null, reference text, pid integer,
        at real not null)""",
)
DRAIN_TIMEOUT_S = 2


@dataclass(frozen=True, slots=True)
class PublicationRow:
    id: int
    reference: str
    title: str
    body: str
    sha256: str
    published_at: float


@dataclass(frozen=True, slots=True)
class Request:
    """One request that reached the service; `reference` and `pid` are None where it named none."""

    id: int
    method: str
    path: str
    reference: str | None
    pid: int | None
    at: float


class NewPublication(BaseModel):
    reference: Annotated[str, Field(min_length=1, max_length=500)]
    title: str
    body: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def publications(file: Path, reference: str | None = None) -> list[PublicationRow]:
    """What the service whose file this is has published, oldest first; with a reference, only what bears it."""
    with transaction(file) as connection:
        rows = connection.execute(
            "select * from publications where ?1 is null or reference = ?1 order by id", (reference,)
        ).fetchall()
    return [PublicationRow(**dict(row)) for row in rows]


def requests(file: Path) -> list[Request]:
    """Every request that reached the service whose file this is, oldest first."""
    with transaction(file) as connection:
        rows = connection.execute("select * from requests order by id").fetchall()
    return [Request(**dict(row)) for row in rows]


def make_app(file: Path) -> FastAPI:
    """The service on a file, which is made when it is not there."""
    with transaction(file, create=True) as connection:
        for table in TABLES:
            connection.execute(table)
    app = FastAPI(title="Publishing service", openapi_url=None)

    async def log(request: HttpRequest, call_next: Callable[[HttpRequest], Awaitable[Response]]) -> Response:
        reference = request.query_params.get("reference") or _reference(await request.body())
        sender = re.search(r"\(pid (\d{1,9})\)", request.headers.get("user-agent", ""))
        pid = int(sender[1]) if sender else None
        await run_in_threadpool(_log, file, request.method, request.url.path, reference, pid)
        return await call_next(request)

    async def refuse(_request: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        return JSONResponse({"detail": faults}, status_code=422)  # without the input, which need not be text

    def publish(new: NewPublication) -> dict[str, Any]:
        row = _publish(file, new)
        return _without_body(row)

    def find(reference: str | None = None) -> list[dict[str, Any]]:
        return [_without_body(row) for row in publications(file, reference)]

    def read(publication_id: int) -> dict[str, Any]:
        for row in publications(file):
            if row.id == publication_id:
                return asdict(row)
        raise HTTPException(404, f"there is no publication {publication_id}")

    def read_log() -> list[dict[str, Any]]:
        return [asdict(request) for request in requests(file)]

    app.middleware("http")(log)
    app.add_exception_handler(RequestValidationError, refuse)
    app.add_api_route("/publications", publish, methods=["POST"], status_code=201)
    app.add_api_route("/publications", find, methods=["GET"])
    app.add_api_route("/publications/{publication_id}", read, methods=["GET"])
    app.add_api_route("/log", read_log, methods=["GET"])
    return app


def _publish(file: Path, new: NewPublication) -> PublicationRow:
    with transaction(file, create=True) as connection:
        row = connection.execute(
            "insert into publications (reference, title, body, sha256, published_at)"
            " values (?, ?, ?, ?, ?) returning *",
            (new.reference, new.title, new.body, new.sha256, time.time()),
        ).fetchone()
    return PublicationRow(**dict(row))


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


def _without_body(row: PublicationRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "body"}


def main() -> None:
    place = take_place("publishing")
    app = make_app(place.file)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_TIMEOUT_S)
    announce(place, "http")
    uvicorn.Server(config).run(sockets=[place.listener])


if __name__ == "__main__":
    main()
