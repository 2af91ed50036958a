"""Numbered facts about a run. Numbering is the last statement of a transaction: it locks the run row, and it fences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import fetch_all
from transactions.errors import Cancelling, Fenced
from transactions.ids import RunId, Tenant, WorkerId
from transactions.statements import load
from transactions.states import RunState

_RUNS = load("runs")


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is `noun.happened`; `data` is small JSON."""

    kind: str
    data: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a run's current segment by one worker. `generation` is the fencing token."""

    run_id: RunId
    tenant: Tenant
    segment: int
    generation: int
    worker_id: WorkerId


def _json(events: Sequence[Event]) -> str:
    return json.dumps([{"kind": event.kind, "data": dict(event.data)} for event in events])


async def number_fenced(session: AsyncSession, execution: Execution, *events: Event) -> None:
    """Number the events of what a segment begins: an action, a claim, rows of a tool.

    Raises Fenced when this execution no longer owns the run, Cancelling when the run is being cancelled.
    """
    if not await _number(session, "number_fenced", execution, events):
        if await fetch_all(session, _RUNS["cancelling_of_execution"], **_token(execution)):
            raise Cancelling(f"run {execution.run_id} is being cancelled: nothing new is begun")
        raise Fenced(f"run {execution.run_id}: generation {execution.generation} is no longer the current one")


async def number_done(session: AsyncSession, execution: Execution, *events: Event) -> bool:
    """Number the events of what this execution has done already: a turn, a step's row, its end.

    Taken while the run is being cancelled too; then False: begin nothing after it. Raises Fenced.
    """
    rows = await _number(session, "number_fenced_or_cancelling", execution, events)
    if not rows:
        raise Fenced(f"run {execution.run_id}: generation {execution.generation} is no longer the current one")
    return rows[0]["state"] == RunState.RUNNING


async def _number(
    session: AsyncSession, statement: str, execution: Execution, events: Sequence[Event]
) -> Sequence[Mapping[str, Any]]:
    return await fetch_all(
        session, _RUNS[statement], **_token(execution), worker_id=execution.worker_id, events=_json(events)
    )


def _token(execution: Execution) -> dict[str, Any]:
    return {"run_id": execution.run_id, "generation": execution.generation, "segment": execution.segment}


async def number_open(session: AsyncSession, run_id: RunId, *events: Event, worker_id: WorkerId | None) -> bool:
    """Number the events of what a relay intends. False when the run takes no new work: roll back."""
    return bool(
        await fetch_all(session, _RUNS["number_open"], run_id=run_id, worker_id=worker_id, events=_json(events))
    )


async def number(session: AsyncSession, run_id: RunId, *events: Event, worker_id: WorkerId | None = None) -> None:
    """Number facts: receipts, decisions, cancellation. They are true whoever tells them."""
    await fetch_all(session, _RUNS["number"], run_id=run_id, worker_id=worker_id, events=_json(events))


async def page(session: AsyncSession, run_id: RunId, *, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
    """Events of a run with a number above `after`, in order, at most `limit`."""
    return await fetch_all(session, _RUNS["events_page"], run_id=run_id, after=after, limit=limit)
