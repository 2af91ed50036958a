"""Tells an execution that its run is being cancelled, so that no long call goes on for it, or has to hand on."""

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from transactions import Cancelling, Database, Diverged, Fenced, RunId, cancelling, is_transient, steering

T = TypeVar("T")
_log = logging.getLogger("surefoot.interrupts")


class Interrupts:
    """The executions of a worker's segments. Each commit of theirs asks too: this one only spares the waiting."""

    def __init__(self, database: Database, every_s: float) -> None:
        self._database = database
        self._every_s = every_s
        self._going: dict[RunId, asyncio.Task[Any]] = {}
        self._told: set[asyncio.Task[Any]] = set()
        self._asked: frozenset[RunId] = frozenset()

    def asked(self, run_id: RunId) -> bool:
        """Whether a person wants the run held, or handed on, at its next boundary."""
        return run_id in self._asked

    async def unless_cancelling(self, run_id: RunId, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises. Raises Cancelling when it was interrupted, once it has come to its end.

        It is a task of its own, so that the engine's workflow around it is not cancelled and ends as it should. What
        it was sending in a task of `Effects` goes on; what a thread reads is waited for.
        """
        task = asyncio.create_task(work, name=f"run {run_id}")
        self._going[run_id] = task
        try:
            return await task
        except asyncio.CancelledError:
            if task not in self._told or _is_cancelled_itself():
                raise
            raise Cancelling(f"run {run_id} is being cancelled: it was interrupted") from None
        except BaseExceptionGroup as group:  # of calls that went on side by side
            if group.subgroup(Fenced) is not None:
                raise
            if (diverged := _first(group, Diverged)) is not None:
                raise diverged from group
            if group.subgroup(Cancelling) is None:
                raise
            raise Cancelling(f"run {run_id} is being cancelled") from group
        finally:
            self._told.discard(task)
            if self._going.get(run_id) is task:
                del self._going[run_id]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.run_once()
            except Exception as error:
                if not is_transient(error):
                    _log.exception("could not ask which runs are being cancelled; the next round asks again")
            await asyncio.sleep(self._every_s * random.uniform(0.75, 1.0))  # noqa: S311

    async def run_once(self) -> None:
        """Interrupt what is being cancelled, once: what it does on its way out is not interrupted again."""
        if not self._going:
            return
        async with self._database.all_tenants("watchdog.look") as session:
            found = await cancelling.among(session, list(self._going))
            self._asked = await steering.asked_among(session, list(self._going))
        for run_id in found:
            task = self._going.get(run_id)
            if task is not None and task not in self._told:
                _log.warning("run %s is being cancelled: interrupted", run_id)
                self._told.add(task)
                task.cancel()

    def leave(self) -> list[asyncio.Task[Any]]:
        """Cancel whatever is at work here, for others have it now. Their tasks."""
        going = [*self._going.values()]
        for task in going:
            task.cancel()
        return going


def _first(error: BaseException, kind: type[T]) -> T | None:
    """The first error of this kind in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        members: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return next((found for one in members if (found := _first(one, kind)) is not None), None)
    return error if isinstance(error, kind) else None


def _is_cancelled_itself() -> bool:
    """Whether it is the caller that is cancelled, by the loop's end, and not only what it waited for."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
