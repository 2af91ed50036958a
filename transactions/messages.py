"""The model's messages, appended turn by turn, so that stopping a run never needs the engine's rows."""

from collections.abc import Sequence

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.canonical import storable_json
from transactions.database import execute, fetch_all, fetch_one
from transactions.events import Execution
from transactions.ids import RunId
from transactions.statements import load

_MESSAGES = load("messages")


async def append(session: AsyncSession, execution: Execution, *, first_seq: int, messages: Sequence[JsonValue]) -> None:
    """Append messages at `first_seq` and after; what is already there stays (a replay appends the same again)."""
    await execute(
        session,
        _MESSAGES["append"],
        run_id=execution.run_id,
        tenant=execution.tenant,
        segment=execution.segment,
        first_seq=first_seq,
        messages=storable_json(list(messages)),
    )


async def count(session: AsyncSession, run_id: RunId) -> int:
    row = await fetch_one(session, _MESSAGES["count"], run_id=run_id)
    assert row is not None
    return int(row["stored"])


async def before(session: AsyncSession, run_id: RunId, *, cut: int) -> list[JsonValue]:
    """The messages with a sequence number below `cut`, oldest first."""
    return [row["message"] for row in await fetch_all(session, _MESSAGES["before"], run_id=run_id, cut=cut)]


async def record_call(
    session: AsyncSession, execution: Execution, *, turn: int, model: str, input_tokens: int, output_tokens: int
) -> None:
    """One model request that really was made, counted once per turn."""
    await execute(
        session,
        _MESSAGES["record_call"],
        run_id=execution.run_id,
        tenant=execution.tenant,
        segment=execution.segment,
        generation=execution.generation,
        worker_id=execution.worker_id,
        turn=turn,
        model=model,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
