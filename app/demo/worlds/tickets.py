"""A ticket desk that honours idempotency keys, and cannot be searched by them.

    POST /tickets {customer, subject}, Idempotency-Key: K     201 and the ticket
    GET  /customers/{customer}/tickets                        {id, subject} of each of theirs, oldest first

The same key with the same body gets the ticket that was opened first, and opens nothing; with another body it is 409.
Without a key each request opens one more. A subject of more than 80 characters is 422.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

from app.demo.worlds.service import transaction
from app.demo.worlds.web import KEY_HEADER, make_service, serve

TABLES = (
    """create table if not exists tickets (
        id integer primary key autoincrement, key text unique, customer text not null, subject text not null,
        opened_at real not null)""",
)
SUBJECT_CHARACTERS_MAX = 80


@dataclass(frozen=True, slots=True)
class Ticket:
    """One ticket that was opened. `key` is None when its request had none."""

    id: int
    key: str | None
    customer: str
    subject: str
    opened_at: float


class NewTicket(BaseModel):
    customer: Annotated[str, Field(min_length=1, max_length=200)]
    subject: Annotated[str, Field(min_length=1, max_length=SUBJECT_CHARACTERS_MAX)]


def tickets(file: Path) -> list[Ticket]:
    """Every ticket of the desk whose file this is, oldest first."""
    with transaction(file) as connection:
        rows = connection.execute("select * from tickets order by id").fetchall()
    return [Ticket(**dict(row)) for row in rows]


def make_app(file: Path) -> FastAPI:
    """The desk on a file, which is made when it is not there."""
    app = make_service(file, "Ticket desk", TABLES)

    def open_ticket(new: NewTicket, key: Annotated[str | None, Header(alias=KEY_HEADER)] = None) -> dict[str, Any]:
        ticket = _open(file, new, key)
        if (ticket.customer, ticket.subject) != (new.customer, new.subject):
            raise HTTPException(409, f"key {key} opened ticket {ticket.id} with another body: send a new key with it")
        return asdict(ticket)

    def of_customer(customer: str) -> list[dict[str, Any]]:
        return [{"id": one.id, "subject": one.subject} for one in tickets(file) if one.customer == customer]

    app.add_api_route("/tickets", open_ticket, methods=["POST"], status_code=201)
    app.add_api_route("/customers/{customer:path}/tickets", of_customer, methods=["GET"])
    return app


def _open(file: Path, new: NewTicket, key: str | None) -> Ticket:
    """The ticket of this key, opened now if there is none."""
    with transaction(file, create=True) as connection:
        row = connection.execute("select * from tickets where key = ?", (key,)).fetchone()
        if row is None:
            row = connection.execute(
                "insert into tickets (key, customer, subject, opened_at) values (?, ?, ?, ?) returning *",
                (key, new.customer, new.subject, time.time()),
            ).fetchone()
    return Ticket(**dict(row))


if __name__ == "__main__":
    serve("tickets", make_app)
