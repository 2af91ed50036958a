"""A publishing service as many are: each accepted request makes one more publication; it knows no idempotency keys.

POST /publications {reference, title, body, sha256}   201 and the publication, without its body
GET  /publications?reference=...                      those with the reference (all without it), oldest first
GET  /publications/{id}                               one of them, with its body; 404 when there is none
GET  /log                                             every request that reached the service, oldest first
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from app.demo.worlds.service import transaction
from app.demo.worlds.web import Request, make_service, requests, serve

__all__ = ["NewPublication", "PublicationRow", "Request", "make_app", "publications", "requests"]

TABLES = (
    """create table if not exists publications (
        id integer primary key autoincrement, reference text not null, title text not null, body text not null,
        sha256 text not null, published_at real not null)""",
)


@dataclass(frozen=True, slots=True)
class PublicationRow:
    id: int
    reference: str
    title: str
    body: str
    sha256: str
    published_at: float


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


def make_app(file: Path) -> FastAPI:
    """The service on a file, which is made when it is not there."""
    app = make_service(file, "Publishing service", TABLES)

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


def _without_body(row: PublicationRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "body"}


if __name__ == "__main__":
    serve("publishing", make_app)
