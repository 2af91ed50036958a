"""The app that `surefoot serve --reload` starts again and again."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import wiring
from app.loading import load_agents, load_subscriptions
from app.settings import Settings
from app.surefoot import Surefoot


def build() -> FastAPI:
    """The API with a worker in its lifespan, on the database of the environment."""
    settings = Settings.from_env()
    agents, subscriptions = load_agents(settings.agents), load_subscriptions(settings.consumers)
    url, local = wiring.open_database(settings)
    wiring.migrate_database(url, agents)
    surefoot = Surefoot(url, agents, subscriptions=subscriptions, settings=settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with surefoot.lifespan(app):
            yield
        if local is not None:
            local.leave()

    outer = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None)
    outer.mount("/", surefoot.web)
    return outer
