"""The one door for recorded work: `await journal.step(name, body)`.

A body runs until its result is recorded, and from then on the recorded result is taken. Today a step is a DBOS step; a
faster recorder can come behind this door without touching a caller.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from dbos import DBOS
from dbos import error as engine_errors
from pydantic import JsonValue

from steps.clock import Clock
from transactions import (
    Cancelling,
    Database,
    Diverged,
    Event,
    Execution,
    Fenced,
    StepRow,
    failpoint,
    number_done,
    record_steps,
    until_committed,
)
from transactions.steps import How

_log = logging.getLogger("surefoot.journal")


@dataclass(frozen=True, slots=True)
class Done:
    """What a body answers: JSON, and whether it ran or found its work already there."""

    value: JsonValue
    how: How = "ran"


Body = Callable[[], Awaitable[Done]]


class Journal:
    """The steps of one execution of a segment, numbered in the order in which they are opened."""

    def __init__(
        self,
        database: Database,
        execution: Execution,
        *,
        clock: Clock,
        still_mine: Callable[[], None],
        on_fenced: Callable[[str], None],
    ) -> None:
        self._database = database
        self._execution = execution
        self.clock = clock
        self._still_mine = still_mine
        self._on_fenced = on_fenced
        self._opened = 0
        self._replayed: list[StepRow] = []

    async def step(self, name: str, body: Body) -> JsonValue:
        """The recorded result of `body`, which runs only if none is recorded yet.

        The body is safe to repeat: it may run again when the process dies before its result is recorded. It answers
        with values, never with exceptions; an infrastructure error is retried here and never recorded. Raises
        Cancelling, and records nothing, when the run is being cancelled: it will not be executed again; Diverged, when
        the record has a step of another name here: the code has changed, or does not always take the same steps.
        """
        position = self._opened
        self._opened += 1
        ran = False

        async def recorded() -> JsonValue:
            nonlocal ran
            ran = True
            try:
                return await self._run(position, name, body)
            except Fenced as fenced:
                self._on_fenced(str(fenced))
                raise

        try:
            value = await DBOS.run_step_async({"name": name}, recorded)
        except engine_errors.DBOSUnexpectedStepError as error:
            *_, found, expected = error.inputs
            raise Diverged(position, expected=expected, found=found) from error
        failpoint("step.after_record")
        if not ran:
            now = self.clock.now().isoformat()
            self._replayed.append(StepRow(position, name, "replayed", now, now))
        return value

    async def _run(self, position: int, name: str, body: Body) -> JsonValue:
        self._still_mine()
        started_at = self.clock.now().isoformat()
        failpoint("step.before_body")
        done = await until_committed(body, self._still_mine)
        failpoint("step.after_body")
        row = StepRow(position, name, done.how, started_at, self.clock.now().isoformat())
        if not await self._write([row], Event("step.done", {"step": name, "how": done.how})):
            raise Cancelling(f"run {self._execution.run_id} is being cancelled: {name} was its last step")
        failpoint("step.before_record")
        return done.value

    def check_end(self, recorded: Mapping[int, str]) -> None:
        """Raises Diverged when the segment ends before it has come to all of these steps, which are on record."""
        left = [position for position in recorded if position >= self._opened]
        if left:
            raise Diverged(min(left), expected=recorded[min(left)], found="the end of the segment")

    async def flush(self) -> None:
        """Write down the replays since the last step that ran."""
        if self._replayed:
            await self._write([], Event("steps.replayed", {"steps": len(self._replayed)}))

    async def _write(self, rows: Sequence[StepRow], event: Event) -> bool:
        """False: the run is being cancelled."""
        replayed, self._replayed = self._replayed, []

        async def write() -> bool:
            async with self._database.transaction("step.row", self._execution.tenant) as session:
                await record_steps(session, self._execution, [*replayed, *rows])
                return await number_done(session, self._execution, event)

        return await until_committed(write, self._still_mine)
