"""What every command needs: settings, agents, a database that is up and current, and errors told in one sentence."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import JsonValue

from app import wiring
from app.acting import Acting
from app.loading import load_agents, load_subscriptions
from app.settings import Settings
from app.surefoot import Surefoot
from steps import DurableAgent, ToolError
from transactions import SurefootError, migrate
from transactions.canonical import read_json
from transactions.local import LocalPostgresError

T = TypeVar("T")


def fail(message: object) -> NoReturn:
    """Say it in one sentence and exit with 1."""
    print(f"surefoot: {message}", file=sys.stderr)
    raise typer.Exit(1)


def given_json(option: str, text: str) -> JsonValue:
    """What an option says in JSON. Fails in words."""
    try:
        return read_json(text)
    except ValueError as error:
        fail(f"{option} is not JSON ({error}): quote a text as '\"text\"'.")


@contextmanager
def told() -> Generator[None]:
    """Errors a person can act on are told in one sentence; others keep their traceback."""
    try:
        yield
    except (SurefootError, ToolError, LocalPostgresError) as error:
        fail(error)


@contextmanager
def database(
    *, agents: list[DurableAgent[Any]] | None = None, migrated: bool = True
) -> Generator[tuple[Settings, str]]:
    """Settings and the URL of a database that answers. The embedded one is migrated here; another must be current."""
    settings = Settings.from_env()
    url, local = wiring.open_database(settings)
    try:
        if migrated:
            if local is None:
                migrate.require_current(url)
            elif migrate.pending(url) or agents:
                wiring.migrate_database(url, agents or [])
        yield settings, url
    finally:
        if local is not None:
            local.leave()


@contextmanager
def opened() -> Generator[Surefoot]:
    """A Surefoot object on the database, with every agent and consumer loaded. It is no worker."""
    with told():
        settings = Settings.from_env()
        agents, subscriptions = load_agents(settings.agents), load_subscriptions(settings.consumers)
        with database(agents=agents) as (_, url):
            yield Surefoot(url, agents, subscriptions=subscriptions, settings=settings)


def ask(call: Callable[[Acting], Awaitable[T]], *, owner_may: bool = False) -> T:
    """Open, await one thing as who `SUREFOOT_TOKEN` says, close.

    owner_may: without a token, whoever may log in to the database as the schema's owner is an admin.
    """
    with opened() as surefoot:

        async def once() -> T:
            try:
                return await call(await acting(surefoot, owner_may=owner_may))
            finally:
                await surefoot.close()

        return asyncio.run(once())


async def acting(surefoot: Surefoot, *, owner_may: bool = False) -> Acting:
    """As who `SUREFOOT_TOKEN` says. Raises Unauthenticated."""
    token = os.environ.get("SUREFOOT_TOKEN") or None
    if token is None and owner_may and (owner := await surefoot.acting_as_owner()) is not None:
        return owner
    return await surefoot.authenticated(token)
