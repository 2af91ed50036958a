"""Real transactions on connections of their own, advanced one statement at a time in a seeded random order.

    stage = Stage(monitor, seed)
    stage.actor("ada decides", decide)        # async functions that use a SteppedDatabase
    stage.actor("bob decides", decide_too)
    await stage.play()                        # every statement and every commit was somebody's turn

An actor that waits for another one's lock is found through pg_blocking_pids and passed over until it is free, so what
happens depends on the seed alone. A transaction that Postgres ended to resolve a deadlock runs again, and is counted.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, cast

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from transactions import WORKER, Access, Database, Limits, Tenant
from transactions.statements import load

_ACTOR: ContextVar["Actor | None"] = ContextVar("actor", default=None)
_SLOW_S = 0.002
_STUCK_S = 60.0
_RETRIES_MAX = 20
_RETRIED = ("40P01", "40001")
_SCOPE = text("select set_config('role', :role, true), set_config('surefoot.tenant', :tenant, true)")

NAMES: Mapping[str, str] = {
    statement.text: f"{table}.{name}"
    for table in sorted(
        path.name.removesuffix(".sql")
        for path in files("transactions").joinpath("sql").iterdir()
        if path.name.endswith(".sql")
    )
    for name, statement in load(table).items()
}


@dataclass(slots=True)
class Actor:
    """One script, which runs one transaction after the other."""

    name: str
    stage: "Stage"
    pid: int | None = None
    at: str | None = None  # the statement it is about to run; None while it moves
    go: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    blocked: bool = False
    result: Any = None
    error: BaseException | None = None

    async def turn(self, what: str) -> None:
        """Wait for this actor's next turn."""
        self.at = what
        self.blocked = False
        self.stage.arrived.set()
        await self.go.wait()
        self.go.clear()

    def outcome(self) -> Any:
        """What the script returned. Raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.result


async def step(what: str) -> None:
    """A point at which the stage may let somebody else go on; nothing outside of a stage."""
    actor = _ACTOR.get()
    if actor is not None:
        await actor.turn(what)


class _Session(AsyncSession):
    async def execute(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        await step(NAMES.get(getattr(statement, "text", ""), str(statement)[:60]))
        return await super().execute(statement, *args, **kwargs)


class SteppedDatabase(Database):
    """The product's database, except that each statement and each commit of an actor waits for its turn."""

    def __init__(self, url: str, limits: Limits | None = None, access: Access = WORKER) -> None:
        super().__init__(url, limits, access)
        self._sessions = async_sessionmaker(self._engine, class_=_Session, expire_on_commit=False)

    @asynccontextmanager
    async def _transaction(self, name: str, *, role: str, tenant: Tenant) -> AsyncGenerator[AsyncSession]:
        actor = _ACTOR.get()
        async with self._sessions() as session:
            async with session.begin():
                connection = await session.connection()
                if actor is not None:
                    raw = await connection.get_raw_connection()
                    actor.pid = cast("psycopg.AsyncConnection[Any]", raw.driver_connection).info.backend_pid
                # Not a turn of its own: it reads and writes nothing that others could see.
                await AsyncSession.execute(session, _SCOPE, {"role": role, "tenant": tenant})
                yield session
                await step(f"commit {name}")
            if actor is not None:
                actor.pid = None


Script = Callable[[], Awaitable[Any]]


class Monitor:
    """Who waits for whose lock. One connection of its own."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncGenerator["Monitor"]:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            yield cls(connection)

    async def waiting(self, pids: list[int]) -> set[int]:
        cursor = await self._connection.execute(
            "select pid from unnest(%s::int[]) as pid where cardinality(pg_blocking_pids(pid)) > 0", (pids,)
        )
        return {row[0] for row in await cursor.fetchall()}


class Stage:
    """Plays actors against each other. One seed, one order of statements."""

    def __init__(self, monitor: Monitor, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrived = asyncio.Event()
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self.retried = 0
        self._monitor = monitor
        self._scripts: list[Script] = []

    def actor(self, name: str, script: Script) -> Actor:
        """`script` opens its own transactions. It may raise: look at `outcome()`."""
        made = Actor(name, self)
        self.actors.append(made)
        self._scripts.append(script)
        return made

    async def play(self) -> None:
        """Until every script has ended. Raises when nothing can move any more."""
        tasks = [asyncio.create_task(self._run(a, s)) for a, s in zip(self.actors, self._scripts, strict=True)]
        try:
            await self._settle()
            while ready := [actor for actor in self.actors if actor.at is not None]:
                actor = self.random.choice(ready)
                self.trace.append(f"{actor.name}: {actor.at}")
                actor.at = None
                actor.go.set()
                await self._settle()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, actor: Actor, script: Script) -> None:
        _ACTOR.set(actor)
        try:
            await actor.turn("enters")
            for attempt in range(_RETRIES_MAX):
                try:
                    actor.result = await script()
                    break
                except DBAPIError as error:
                    if getattr(error.orig, "sqlstate", None) not in _RETRIED or attempt == _RETRIES_MAX - 1:
                        raise
                    self.retried += 1
                    self.trace.append(f"{actor.name}: {type(error.orig).__name__}, again")
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            actor.error = error
            self.trace.append(f"{actor.name}: {type(error).__name__} {error}"[:300])
        finally:
            actor.over = True
            self.arrived.set()

    async def _settle(self) -> None:
        """Until every actor stands before its next statement, has ended, or waits for a lock that another one holds."""
        give_up = asyncio.get_running_loop().time() + _STUCK_S
        while moving := [actor for actor in self.actors if not actor.over and actor.at is None]:
            if any(not actor.blocked for actor in moving) and await self._somebody_arrives():
                continue
            waiting = await self._monitor.waiting([actor.pid for actor in moving if actor.pid is not None])
            for actor in moving:
                was, actor.blocked = actor.blocked, actor.pid in waiting
                if actor.blocked and not was:
                    self.trace.append(f"{actor.name}: waits")
            if all(actor.blocked for actor in moving):
                if any(actor.at is not None for actor in self.actors):
                    return
                await asyncio.sleep(_SLOW_S)  # they wait for each other: Postgres ends one of them
            if asyncio.get_running_loop().time() > give_up:
                raise AssertionError("nothing moves any more:\n" + "\n".join(self.trace))

    async def _somebody_arrives(self) -> bool:
        try:
            async with asyncio.timeout(_SLOW_S):
                await self.arrived.wait()
        except TimeoutError:
            return False
        self.arrived.clear()
        return True


async def in_lanes(seeds: Iterable[int], play: Callable[[int], Awaitable[None]], lanes: int = 3) -> None:
    """Play every seed, a few at a time: they share no run, only the machine. The first failure ends all."""
    left = iter(seeds)

    async def lane() -> None:
        for seed in left:
            await play(seed)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(lane())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


@dataclass(slots=True)
class Pace:
    """How many interleavings ran, how many statements they made, how long it took."""

    interleavings: int = 0
    turns: int = 0
    retried: int = 0
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    notes: dict[str, int] = field(default_factory=dict[str, int])

    @contextmanager
    def one(self, stage: Stage) -> Generator[None]:
        yield
        self.seconds = time.monotonic() - self.began
        self.interleavings += 1
        self.turns += len(stage.trace)
        self.retried += stage.retried

    def note(self, what: str, times: int = 1) -> None:
        self.notes[what] = self.notes.get(what, 0) + times

    def __str__(self) -> str:
        rate = self.interleavings / self.seconds if self.seconds else 0.0
        seen = "".join(f", {what} {times}" for what, times in sorted(self.notes.items()))
        return (
            f"{self.interleavings} interleavings, {self.turns} turns, {rate:.0f} interleavings/s, "
            f"{self.retried} deadlocks retried{seen}"
        )
