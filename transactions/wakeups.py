"""Tell waiting loops that there is work: NOTIFY off the write path and coalesced; a poll is the guarantee."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import psycopg
from psycopg import sql
from sqlalchemy import make_url

_log = logging.getLogger("surefoot.wakeups")
_COALESCE_S = 0.01
_RECONNECT_S = 1.0

Channel = Literal["outbox", "actions", "queue"]
CHANNELS: tuple[Channel, ...] = ("outbox", "actions", "queue")


class Wakeups:
    """One LISTEN connection and one NOTIFY connection for a process. Lost notifications cost a poll, nothing else."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._arrived: Mapping[str, asyncio.Event] = MappingProxyType({name: asyncio.Event() for name in CHANNELS})
        self._asked: Mapping[str, asyncio.Event] = MappingProxyType({name: asyncio.Event() for name in CHANNELS})
        self._ask = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._listen(), name="listen"),
            asyncio.create_task(self._notify(), name="notify"),
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

    async def _listen(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=5
                ) as connection:
                    for channel in CHANNELS:
                        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(f"surefoot_{channel}")))
                    async for notification in connection.notifies():
                        self._arrived[notification.channel.removeprefix("surefoot_")].set()
            except (psycopg.Error, OSError) as error:
                _log.warning("not listening (%s); polling goes on, trying again", error)
            await asyncio.sleep(_RECONNECT_S)

    async def _notify(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=5
                ) as connection:
                    while True:
                        await self._ask.wait()
                        await asyncio.sleep(_COALESCE_S)
                        self._ask.clear()
                        for channel in CHANNELS:
                            if self._asked[channel].is_set():
                                self._asked[channel].clear()
                                await connection.execute(
                                    sql.SQL("notify {}").format(sql.Identifier(f"surefoot_{channel}"))
                                )
            except (psycopg.Error, OSError) as error:
                _log.warning("not notifying (%s); polling goes on, trying again", error)
            await asyncio.sleep(_RECONNECT_S)
