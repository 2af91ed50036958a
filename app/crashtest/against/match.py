"""The match: every contender is killed once in every window, started again until its run has ended, and counted."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from app.crashtest import ground as grounds
from app.crashtest.against import task
from app.crashtest.against.contenders import Contender
from app.crashtest.against.table import Played, Table
from app.crashtest.faults import Fault, parse
from app.crashtest.fork import Forks
from app.crashtest.session import CrashTestFailed
from app.crashtest.subjects import start_service
from app.demo.worlds.publishing import publications
from transactions import InvalidInput
from transactions.clones import clone
from transactions.database import connector

T = TypeVar("T")
_LOOK_S = 0.02
_START_S = 60.0  # what one start may take
_STARTS_MAX = 5  # of one run; one of them was killed
_PACKAGE = __name__.rpartition(".")[0]
_TRACING = ("LANGSMITH_", "LANGCHAIN_", "LOGFIRE_", "OTEL_", "AGAINST_")


def windows(replay: Sequence[str]) -> tuple[str | None, ...]:
    """The windows to play, None for a run that is left alone: all, or those of some rows. Raises InvalidInput."""
    return tuple(map(_window, replay)) or (None, *task.WINDOWS)


def _window(replay: str) -> str:
    faults = parse(replay)
    if len(faults) != 1 or faults[0] != Fault("kill", faults[0].point, 1) or faults[0].point not in task.WINDOWS:
        raise InvalidInput(
            f"--replay {replay!r} is no row of this table: write kill:WINDOW:1, with WINDOW one of "
            f"{', '.join(task.WINDOWS)}."
        )
    return faults[0].point


@dataclass(frozen=True, slots=True)
class Match:
    """What the cases share. `templates`: the database that each contender's cases are cloned from."""

    folder: Path
    server_url: str
    forks: Forks
    publishing_url: str
    published: Path
    templates: Mapping[str, str]
    say: Callable[[str], None] = field(default=lambda _: None)

    async def play(self, contender: Contender, window: str | None) -> Played:
        """One case. Raises CrashTestFailed when it would say nothing: the kill was another than the window's, or a run
        that is left alone fails.
        """
        name = f"{contender.name}-{window or 'undisturbed'}"
        template, passed = self.templates[contender.name], self.folder / f"{name}.windows"
        async with clone(self.server_url, f"{template}_{window or 'undisturbed'}", template=template) as url:
            env = {task.DATABASE_URL: url, task.PUBLISHING_URL: self.publishing_url, task.LOG: str(passed)}
            code = await self._run(
                contender, ["run", name], env | ({} if window is None else {task.KILL: window}), name
            )
            killed, starts = time.monotonic(), 1
            if window is None and code != 0:
                raise CrashTestFailed(
                    f"{contender.name} ends with {code} though nobody strikes: see {self._log(name)}."
                )
            if window is not None:
                await self._require(contender, window, url, name, code)
            while code != 0 and starts < _STARTS_MAX:
                code = await self._run(contender, ["run", name], env, name)
                starts += 1
            seconds = time.monotonic() - killed
            orders, publications = await self._count(url, name)
        calls = sum(line.split()[1] in task.ANSWERS for line in passed.read_text().splitlines())
        repeated = max(0, calls - len(task.SCRIPT))
        played = Played(contender.name, window, orders, publications, repeated, code == 0, starts, seconds)
        self.say(f"{contender.name} {played.seed}: {played}, {starts} starts, {seconds:.1f} s after the first")
        return played

    async def _require(self, contender: Contender, window: str, url: str, name: str, code: int | None) -> None:
        """The process died in the window, and the world was then as the window says: the same kill for everybody."""
        want = task.WINDOWS[window]
        found, wanted = await self._count(url, name), (want.orders, want.publications)
        if code != -signal.SIGKILL or found != wanted:
            raise CrashTestFailed(
                f"{contender.name} was not killed as asked for in {window}: it ended with {code}, and the world has "
                f"{found} orders and publications, not {wanted}. See {self._log(name)}."
            )

    async def _count(self, url: str, reference: str) -> tuple[int, int]:
        """Orders and publications, from the database and the service's own file."""
        orders = await asyncio.to_thread(_orders, url, reference)
        return orders, len(await asyncio.to_thread(publications, self.published, reference))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    async def prepare(self, contender: Contender, url: str) -> None:
        """Its own tables, and the orders'. Raises CrashTestFailed."""
        name = f"{contender.name}-prepare"
        code = await self._run(contender, ["prepare"], {task.DATABASE_URL: url}, name)
        if code != 0:
            raise CrashTestFailed(f"{contender.name} cannot prepare its database ({code}): see {self._log(name)}.")

    async def _run(
        self, contender: Contender, arguments: Sequence[str], env: Mapping[str, str], name: str
    ) -> int | None:
        """How the process ended; negative: the signal. None: it took too long and was killed."""
        module = f"{_PACKAGE}.{contender.module}"
        pid = await self.forks.fork(module, arguments, env={**self.forks.env, **env}, log=self._log(name))
        deadline = time.monotonic() + _START_S
        while (code := await self.forks.exit_code(pid)) is None:
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                while await self.forks.exit_code(pid) is None:  # noqa: ASYNC110  it is asked of another process
                    await asyncio.sleep(_LOOK_S)
                return None
            await asyncio.sleep(_LOOK_S)
        return code


async def compare(
    server_url: str,
    folder: Path,
    contenders: Sequence[Contender],
    played: Sequence[str | None],
    *,
    workers: int,
    say: Callable[[str], None] = lambda _: None,
) -> Table:
    """Play these contenders in these windows, `workers` cases at a time, on databases of their own on this server.

    Raises CrashTestFailed, ForkFailed.
    """
    began = time.monotonic()
    gate = asyncio.Semaphore(workers)
    async with _opened(server_url, folder, contenders, say) as match:

        async def one(contender: Contender, window: str | None) -> Played:
            async with gate:
                return await match.play(contender, window)

        cases = await _together([one(contender, window) for window in played for contender in contenders])
    versions = {contender.name: contender.versions() for contender in contenders}
    return Table(cases, versions, time.monotonic() - began)


async def _together(parts: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order; when one raises, the others are cancelled first, and then that is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [done.result() for done in tasks]


@asynccontextmanager
async def _opened(
    server_url: str, folder: Path, contenders: Sequence[Contender], say: Callable[[str], None]
) -> AsyncGenerator[Match]:
    env = {name: value for name, value in grounds.environment(None).items() if not name.startswith(_TRACING)}
    async with AsyncExitStack() as stack:
        forks = await stack.enter_async_context(Forks(env, folder / "forks.log"))
        published = folder / "publishing.sqlite"
        publishing_url = await start_service("publishing", published, forks)
        stem = f"against_{os.getpid()}_{int(time.time()) % 100_000}"
        templates = {contender.name: f"{stem}_{contender.module}" for contender in contenders}
        match = Match(folder, server_url, forks, publishing_url, published, templates, say)

        async def prepared(contender: Contender) -> None:
            name = templates[contender.name]
            url = await stack.enter_async_context(clone(server_url, name, template="template0"))
            await match.prepare(contender, url)

        await _together([prepared(contender) for contender in contenders])
        yield match


def _orders(url: str, reference: str) -> int:
    with connector(url)() as connection:
        row = connection.execute(task.COUNT_ORDERS, (reference,)).fetchone()
        assert row is not None
    return int(row[0])
