"""The small agent that every contender is: three turns of a scripted model, two tools, and the windows of a kill.

A contender is a program, `python -m app.crashtest.against.NAME prepare` (its tables, once) and `... run REFERENCE`:
start the run of that order, or continue it when it is there. It ends with 0 when the run has. It takes from the
environment

    DATABASE_URL            its database, with the table `shop.orders`
    AGAINST_PUBLISHING_URL  the publishing service
    AGAINST_KILL            the window in which this process kills itself, if any
    AGAINST_LOG             a file that gets a line `pid window` for every window that is passed
"""

import argparse
import hashlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import httpx
from pydantic import BaseModel, TypeAdapter

from transactions.database import connector

DATABASE_URL = "DATABASE_URL"
PUBLISHING_URL = "AGAINST_PUBLISHING_URL"
KILL = "AGAINST_KILL"
LOG = "AGAINST_LOG"
ANSWER_TIMEOUT_S = 5.0

Tool = Literal["order", "publish"]
SCRIPT: tuple[Tool | None, ...] = ("order", "publish", None)  # what the model asks for, turn by turn; then it answers
ANSWERS = tuple(f"model.{turn}.answered" for turn in range(1, len(SCRIPT) + 1))


@dataclass(frozen=True, slots=True)
class Window:
    """A moment at which a process can be killed, and what the world has then had of this run."""

    title: str
    orders: int
    publications: int


WINDOWS = MappingProxyType(
    {
        "model.1": Window("before the first model call", 0, 0),
        "order.entered": Window("order: nothing is done yet", 0, 0),
        "order.committed": Window("order: the row is committed, the tool has not returned", 1, 0),
        "model.2": Window("order has returned, before the second model call", 1, 0),
        "publish.entered": Window("publish: nothing is sent yet", 1, 0),
        "publish.committed": Window("publish: the service has done it, the response is unread", 1, 1),
        "publish.answered": Window("publish: the response is read, the tool has not returned", 1, 1),
        "model.3": Window("publish has returned, before the third model call", 1, 1),
        "model.3.answered": Window("the last model call has answered", 1, 1),
    }
)
TABLES = """
create schema if not exists shop;
create table if not exists shop.orders (
    id bigint generated always as identity primary key, reference text not null, at timestamptz not null default now()
);"""
INSERT_ORDER = "insert into shop.orders (reference) values (%s) returning id"
COUNT_ORDERS = "select count(*) from shop.orders where reference = %s"


class Published(BaseModel):
    """What the service answers, as far as it is of interest here."""

    id: int


_FOUND = TypeAdapter(list[Published])


def window(name: str) -> None:
    """Pass a window; dies there if this process is to."""
    if log := os.environ.get(LOG):
        with Path(log).open("a") as file:  # one write, which outlives the process
            file.write(f"{os.getpid()} {name}\n")
    if os.environ.get(KILL) == name:
        os.kill(os.getpid(), signal.SIGKILL)


def think(turns: int) -> Tool | None:
    """The model's next response when there were `turns` of them: the tool to call, or None to end."""
    window(f"model.{turns + 1}")
    window(ANSWERS[turns])
    return SCRIPT[turns]


def order(reference: str) -> int:
    """Write the order into the database; its number."""
    window("order.entered")
    with connector(os.environ[DATABASE_URL])() as connection:  # leaving the block commits
        row = connection.execute(INSERT_ORDER, (reference,)).fetchone()
        assert row is not None
    window("order.committed")
    return int(row[0])


def publish(reference: str) -> int:
    """Publish the order at a service that publishes whatever it is sent; the number of the publication."""
    window("publish.entered")
    body = f"Order {reference}"
    new = {"reference": reference, "title": body, "body": body, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    with _client() as client, client.stream("POST", "/publications", json=new) as answer:
        answer.raise_for_status()
        window("publish.committed")  # its status line is there, so the service has done it; the body is unread
        content = answer.read()
        window("publish.answered")
    return Published.model_validate_json(content).id


def find(reference: str) -> int | None:
    """The number of the first publication with this reference. Only who declares that it can be asked asks."""
    with _client() as client:
        answer = client.get("/publications", params={"reference": reference})
        answer.raise_for_status()
    return min((found.id for found in _FOUND.validate_json(answer.content)), default=None)


def create_tables(url: str) -> None:
    """The table of the orders, on a database of its own."""
    with connector(url)() as connection:
        connection.execute(TABLES.encode())


def main(prepare: Callable[[str], None], run: Callable[[str, str], object]) -> None:
    """The command line of a contender. `prepare(url)`, `run(url, reference)`."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare")
    commands.add_parser("run").add_argument("reference")
    given = parser.parse_args()
    url = os.environ[DATABASE_URL]
    if given.command == "prepare":
        prepare(url)
    else:
        run(url, given.reference)


def _client() -> httpx.Client:
    return httpx.Client(base_url=os.environ[PUBLISHING_URL], timeout=ANSWER_TIMEOUT_S, trust_env=False)
