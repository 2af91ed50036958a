"""An issue tracker of an older kind: each accepted request makes one more issue; it knows no idempotency keys.

POST /issues {reference, customer, severity, summary}   201 and the issue
GET  /issues?reference=...                              those with the reference, oldest first

An issue is `{id, reference, customer, severity, summary, made_at}`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

from app.demo.worlds.service import transaction
from app.demo.worlds.web import make_service, serve

TABLES = (
    """create table if not exists issues (
        id integer primary key autoincrement, reference text not null, customer text not null, severity text not null,
        summary text not null, made_at real not null)""",
)


@dataclass(frozen=True, slots=True)
class Issue:
    """One issue that was made."""

    id: int
    reference: str
    customer: str
    severity: str
    summary: str
    made_at: float


class NewIssue(BaseModel):
    reference: Annotated[str, Field(min_length=1, max_length=500)]
    customer: Annotated[str, Field(min_length=1, max_length=200)]
    severity: Annotated[str, Field(min_length=1, max_length=20)]
    summary: Annotated[str, Field(min_length=1, max_length=500)]


def issues(file: Path, reference: str | None = None) -> list[Issue]:
    """Every issue of the tracker whose file this is, oldest first; with a reference, only those that bear it."""
    with transaction(file) as connection:
        rows = connection.execute(
            "select * from issues where ?1 is null or reference = ?1 order by id", (reference,)
        ).fetchall()
    return [Issue(**dict(row)) for row in rows]


def make_app(file: Path) -> FastAPI:
    """The tracker on a file, which is made when it is not there."""
    app = make_service(file, "Legacy tracker", TABLES)

    def make_issue(new: NewIssue) -> dict[str, Any]:
        with transaction(file, create=True) as connection:
            row = connection.execute(
                "insert into issues (reference, customer, severity, summary, made_at)"
                " values (?, ?, ?, ?, ?) returning *",
                (new.reference, new.customer, new.severity, new.summary, time.time()),
            ).fetchone()
        return asdict(Issue(**dict(row)))

    def find(reference: str) -> list[dict[str, Any]]:
        return [asdict(issue) for issue in issues(file, reference)]

    app.add_api_route("/issues", make_issue, methods=["POST"], status_code=201)
    app.add_api_route("/issues", find, methods=["GET"])
    return app


if __name__ == "__main__":
    serve("legacy_tracker", make_app)
