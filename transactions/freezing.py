"""What a segment's first execution fixes for every later one."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import artifacts, messages, waits
from transactions.database import fetch_one
from transactions.ids import RunId
from transactions.statements import load

_SEGMENTS = load("segments")


async def freeze(session: AsyncSession, run: Mapping[str, Any], *, turns_max: int) -> dict[str, JsonValue]:
    """Everything that shapes the sequence of steps, so that a replay sees what the first execution saw."""
    run_id = RunId(run["run_id"])
    answers: dict[str, JsonValue] = {}
    for wait in await _waits_to_answer(session, run):
        answers[wait["call_id"]] = {"go": wait["outcome"] == "go", "reason": wait["reason"]}
    return {
        "cut": await messages.count(session, run_id),
        "answers": answers,
        "turn_base": run["turns"],
        "usage": run["usage"],
        "turns_max": turns_max,
        "artifacts": await artifacts.run_has_any(session, run_id),
    }


async def _waits_to_answer(session: AsyncSession, run: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The waits of the segment that ended last, seen through segments that were given up before their first turn."""
    ended = await fetch_one(session, _SEGMENTS["ended_last"], run_id=run["run_id"], n=run["segment"])
    if ended is None or ended["turns"] != run["turns"]:
        return ()
    return await waits.of_segment(session, RunId(run["run_id"]), ended["n"])
