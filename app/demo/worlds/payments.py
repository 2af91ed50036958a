"""A payment service that can be asked nothing: each accepted request pays once more, and none can be looked up.

POST /payments {customer, cents}      201 and {id}
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
    """create table if not exists payments (
        id integer primary key autoincrement, customer text not null, cents integer not null, paid_at real not null)""",
)


@dataclass(frozen=True, slots=True)
class Payment:
    id: int
    customer: str
    cents: int
    paid_at: float


class NewPayment(BaseModel):
    customer: Annotated[str, Field(min_length=1, max_length=200)]
    cents: Annotated[int, Field(gt=0, le=100_000_000)]


def payments(file: Path) -> list[Payment]:
    """Every payment of the service whose file this is, oldest first."""
    with transaction(file) as connection:
        rows = connection.execute("select * from payments order by id").fetchall()
    return [Payment(**dict(row)) for row in rows]


def make_app(file: Path) -> FastAPI:
    """The service on a file, which is made when it is not there."""
    app = make_service(file, "Payment service", TABLES)

    def pay(new: NewPayment) -> dict[str, int]:
        with transaction(file, create=True) as connection:
            row = connection.execute(
                "insert into payments (customer, cents, paid_at) values (?, ?, ?) returning id",
                (new.customer, new.cents, time.time()),
            ).fetchone()
        return {"id": row["id"]}

    app.add_api_route("/payments", pay, methods=["POST"], status_code=201)
    return app


if __name__ == "__main__":
    serve("payments", make_app)
