"""What the rehearsals of a test session share: a thread that directs them, and templates of migrated databases."""

import asyncio
import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from app.crashtest.ground import announce, template
from app.settings import Settings
from steps import DurableAgent
from transactions.clones import clone

T = TypeVar("T")
PACE = Settings(watchdog_s=0.05, queue_poll_s=0.05, relay_poll_s=0.1, drain_s=0.0)


class Director:
    """A thread with a loop, from which a test that has none directs what is asynchronous."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="surefoot-director", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, waited for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Theatre:
    """One for a session, on the server of `server_url`, where databases may be made."""

    def __init__(self, server_url: str) -> None:
        self.director = Director()
        self._server_url = server_url
        self._stack = AsyncExitStack()
        self._templates: dict[tuple[object, ...], str] = {}
        self._numbers = itertools.count()
        self._on_stage: Callable[[], Awaitable[None]] | None = None

    async def database(self, agents: Sequence[DurableAgent[Any]], stack: AsyncExitStack) -> str:
        """The URL of an empty database with the tables of these agents, where they are announced."""
        tables = tuple(agent.tables for agent in agents if agent.tables is not None)
        if not self._templates:
            self._templates[()] = await self._migrated([], "template0")
        if tables not in self._templates:
            self._templates[tables] = await self._migrated(agents, self._templates[()])
        name = self._templates[tables]
        url = await stack.enter_async_context(clone(self._server_url, self._name(), template=name))
        await announce(url, agents)
        return url

    async def enter(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Before a worker starts: the engine is one a process, so that of another stage ends first."""
        if self._on_stage is not None and self._on_stage != leave:
            await self._on_stage()
        self._on_stage = leave

    async def _migrated(self, agents: Sequence[DurableAgent[Any]], base: str) -> str:
        return await self._stack.enter_async_context(template(self._server_url, self._name(), agents, base=base))

    def _name(self) -> str:
        return f"surefoot_rehearsal_{os.getpid()}_{next(self._numbers)}"

    def close(self) -> None:
        self.director.do(self._stack.aclose())
        self.director.close()
