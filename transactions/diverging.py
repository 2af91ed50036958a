"""A replay that came to another step than the record has: told once, given up, and never repeated for ever."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import readers, stopping
from transactions.database import fetch_one
from transactions.errors import Diverged
from transactions.events import Event, Execution, number_fenced
from transactions.readers import Serving
from transactions.statements import load

_RUNS = load("runs")
_SEGMENTS = load("segments")


async def end(
    session: AsyncSession, execution: Execution, diverged: Diverged, *, serving: Serving, divergences_max: int
) -> str | None:
    """End a segment whose replay diverged; what is told. None: this very execution had ended it.

    The run goes on in a new segment from its own record, where no step is recorded yet: its messages, and its actions,
    whose ids do not depend on the segment. Where this version has no tool for a call whose answer the model has not
    seen, another version goes on, or the run is held. It is held, too, when `divergences_max` segments in a row have
    diverged. Raises Fenced; Cancelling, when the run is being cancelled.
    """
    run_id, n = execution.run_id, execution.segment
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    segment = await fetch_one(session, _SEGMENTS["lock"], run_id=run_id, n=n)
    assert run is not None
    assert segment is not None
    if segment["state"] == "settled" and (run["segment"] != n or run["generation"] == execution.generation):
        return None
    words = (
        f"the replay of its segment {n} by version {serving.version!r} diverged at step {diverged.position}: expected "
        f"{diverged.expected!r}, which is recorded, found {diverged.found!r}"
    )
    told: dict[str, JsonValue] = {
        "segment": n,
        "step": diverged.position,
        "expected": diverged.expected,
        "found": diverged.found,
        "version": serving.version,
    }
    await number_fenced(session, execution, Event("segment.diverged", told))
    why = await readers.unknown_tools(session, run, serving.version, serving.agents[run["agent"]])
    if why is not None:
        await readers.refuse(session, run, version=serving.version, why=f"{words}; {why}")
    elif await _in_a_row(session, run) + 1 >= divergences_max:
        reason = (
            f"{words}; that makes {divergences_max} in a row: make the code of agent {run['agent']} take the "
            "same steps each time, raise its version when they change, then `surefoot runs release`"
        )
        await stopping.hold(session, run_id, n, reason=reason)
    else:
        on = Event("segment.given_up", {"segment": n, "why": words})
        await stopping.go_on_without(session, run, outcome="diverged", stalls=run["stalls"], told=on)
    return words


async def _in_a_row(session: AsyncSession, run: Mapping[str, Any]) -> int:
    row = await fetch_one(session, _SEGMENTS["diverged_in_a_row"], run_id=run["run_id"], n=run["segment"])
    assert row is not None
    return int(row["diverged"])
