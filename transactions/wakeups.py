"""Tell waiting loops that there is work: NOTIFY off the write path and coalesced; a poll is the guarantee."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from transactions.connecting import Limits, parameters

_log = logging.getLogger("surefoot.wakeups")
_COALESCE_S = 0.01
_RECONNECT_S = 1.0
_RECONNECT_S_MAX = 10.0  # polls go on meanwhile; many processes shall not come back at once

Channel = Literal["outbox", "actions", "queue"]
CHANNELS: tuple[Channel, ...] = ("outbox", "actions", "queue")


class Wakeups:
    """One LISTEN connection and one NOTIFY connection for a process. Lost notifications cost a poll, nothing else."""

    def __init__(self, url: str, limits: Limits | None = None, *, application: str = "surefoot") -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._parameters = parameters(limits or Limits(), application=application)
        self._arrived: Mapping[str, asyncio.Event] = MappingProxyType({name: asyncio.Event() for name in CHANNELS})
        self._asked: Mapping[str, asyncio.Event] = MappingProxyType({name: asyncio.Event() for name in CHANNELS})
        self._ask = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._connected("listening", self._listen), name="listen"),
            asyncio.create_task(self._connected("notifying", self._notify), name="notify"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def poke(self, channel: Channel) -> None:
        """Say, after a commit, that there is work. Returns at once."""
        self._arrived[channel].set()
        self._asked[channel].set()
        self._ask.set()

    async def wait(self, channel: Channel, timeout_s: float) -> bool:
        """Until somebody poked the channel, at most `timeout_s`. Whether somebody did."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._arrived[channel].wait(), timeout_s)
        poked = self._arrived[channel].is_set()
        self._arrived[channel].clear()
        return poked

    async def _connected(self, what: str, use: Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]) -> None:
        """Have a connection, as long as there can be one, and another when it is lost."""
        pause_s = _RECONNECT_S
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._parameters)
                async with connection:
                    pause_s = _RECONNECT_S
                    await use(connection)
            except (psycopg.Error, OSError) as error:
                _log.warning("not %s (%s); polling goes on, trying again", what, error)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  jitter, not a secret
            pause_s = min(pause_s * 2, _RECONNECT_S_MAX)

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        for channel in CHANNELS:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(f"surefoot_{channel}")))
        async for notification in connection.notifies():
            self._arrived[notification.channel.removeprefix("surefoot_")].set()

    async def _notify(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while True:
            await self._ask.wait()
            await asyncio.sleep(_COALESCE_S)
            self._ask.clear()
            for channel in CHANNELS:
                if self._asked[channel].is_set():
                    self._asked[channel].clear()
                    await connection.execute(sql.SQL("notify {}").format(sql.Identifier(f"surefoot_{channel}")))
