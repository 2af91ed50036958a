"""The record of steps: one row for each execution of a step and one for each replay of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute
from transactions.events import Execution
from transactions.statements import load

_STEPS = load("steps")

How = Literal["ran", "replayed", "reused", "verified", "deferred"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """`position` counts the steps of a segment from 0; times are ISO 8601 with offset.

    `ran`: the body was executed. `replayed`: the recorded result was taken. `reused`: the body found its work already
    committed by an earlier execution. `verified`: the other side was asked, and had it. `deferred`: it waits.
    """

    position: int
    name: str
    how: How
    started_at: str
    finished_at: str


async def record(session: AsyncSession, execution: Execution, rows: Sequence[StepRow]) -> None:
    """Write the rows; a row of the same execution and position is kept as it is."""
    await execute(
        session,
        _STEPS["record"],
        run_id=execution.run_id,
        tenant=execution.tenant,
        segment=execution.segment,
        generation=execution.generation,
        worker_id=execution.worker_id,
        steps=json.dumps([asdict(row) for row in rows]),
    )
