"""A pager that can be asked nothing: each accepted request wakes somebody once more, and none can be looked up.

POST /pages {to, text}      201 and {id}
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI
from pydantic import BaseModel, Field

from app.demo.worlds.service import transaction
from app.demo.worlds.web import make_service, serve

TABLES = (
    """create table if not exists pages (
        id integer primary key autoincrement, recipient text not null, text text not null, paged_at real not null)""",
)


@dataclass(frozen=True, slots=True)
class Page:
    """One page that went out, to `recipient`."""

    id: int
    recipient: str
    text: str
    paged_at: float


class NewPage(BaseModel):
    to: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(min_length=1, max_length=1000)]


def pages(file: Path) -> list[Page]:
    """Every page of the service whose file this is, oldest first."""
    with transaction(file) as connection:
        rows = connection.execute("select * from pages order by id").fetchall()
    return [Page(**dict(row)) for row in rows]


def make_app(file: Path) -> FastAPI:
    """The service on a file, which is made when it is not there."""
    app = make_service(file, "Pager", TABLES)

    def page(new: NewPage) -> dict[str, int]:
        with transaction(file, create=True) as connection:
            row = connection.execute(
                "insert into pages (recipient, text, paged_at) values (?, ?, ?) returning id",
                (new.to, new.text, time.time()),
            ).fetchone()
        return {"id": row["id"]}

    app.add_api_route("/pages", page, methods=["POST"], status_code=201)
    return app


if __name__ == "__main__":
    serve("pager", make_app)
