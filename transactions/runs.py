"""A run: start it, look at it, cancel it."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from pydantic import JsonValue
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, segments, waits
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, Forbidden, InvalidInput, NotFound, UnknownAgent
from transactions.events import Event, number
from transactions.ids import RunId, Tenant
from transactions.statements import load
from transactions.states import RunState
from transactions.words import check_words, checked_json

_RUNS = load("runs")
_KEY_CHARACTERS_MAX = 255
_INPUT_BYTES_MAX = 1024 * 1024


async def start(
    session: AsyncSession, *, agent: str, input: JsonValue, key: str | None, tenant: Tenant, principal: str
) -> RunId:
    """Start a run in the caller's transaction. The same key and input is the same run.

    Raises Conflict (the key came with another input), UnknownAgent, Forbidden (the tenant), InvalidInput.
    """
    text = checked_json("input", input, bytes_max=_INPUT_BYTES_MAX)
    if key is not None and not 1 <= len(key) <= _KEY_CHARACTERS_MAX:
        raise InvalidInput(f"An idempotency key has 1 to {_KEY_CHARACTERS_MAX} characters: send a shorter one.")
    try:
        row = await fetch_one(
            session, _RUNS["start"], agent=agent, input=text, key=key, tenant=tenant, principal=principal
        )
    except DBAPIError as error:
        raise _start_error(error) from error
    assert row is not None
    return RunId(row["run_id"])


def _start_error(error: DBAPIError) -> Exception:
    if isinstance(error.orig, psycopg.Error):
        message = (error.orig.diag.message_primary or str(error.orig)).strip()
        known = {"SF001": Conflict, "SF002": UnknownAgent, "SF003": Forbidden}.get(error.orig.sqlstate or "")
        if known is not None:
            return known(message[0].upper() + message[1:])
    return error


async def status(session: AsyncSession, run_id: RunId) -> Mapping[str, Any]:
    """The run's row of `surefoot.run_status`. Raises NotFound."""
    row = await fetch_one(session, _RUNS["get"], run_id=run_id)
    if row is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    return row


async def identity(session: AsyncSession, run_id: RunId) -> Mapping[str, Any]:
    """`run_id`, `tenant`, `agent`, `input`, `principal`, `state`: what deps are made from. Raises NotFound."""
    row = await fetch_one(session, _RUNS["identity"], run_id=run_id)
    if row is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    return row


async def page(
    session: AsyncSession, tenant: Tenant, *, state: RunState | None, limit: int
) -> Sequence[Mapping[str, Any]]:
    """The newest runs first, at most `limit`."""
    return await fetch_all(session, _RUNS["page"], tenant=tenant, state=state, limit=limit)


async def stuck(session: AsyncSession, tenant: Tenant, *, limit: int) -> Sequence[Mapping[str, Any]]:
    """The rows of `surefoot.stuck_runs`, those over their limit the longest first, at most `limit`."""
    return await fetch_all(session, _RUNS["stuck"], tenant=tenant, limit=limit)


async def timeline(session: AsyncSession, run_id: RunId) -> Sequence[Mapping[str, Any]]:
    """The rows of `surefoot.run_timeline`, in order."""
    return await fetch_all(session, _RUNS["timeline"], run_id=run_id)


async def release(session: AsyncSession, run_id: RunId) -> None:
    """Let a held run go on from its record. Raises NotFound, Conflict (it is not held)."""
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    raised = await fetch_one(session, _RUNS["raise_segment_if_held"], run_id=run_id)
    if raised is None:
        raise Conflict(f"Run {run_id} is {run['state']}, not held: there is nothing to release.")
    await number(session, run_id, Event("run.released"))
    await waits.enqueue_next(session, run_id, n=raised["segment"], tenant=raised["tenant"])


async def cancel(session: AsyncSession, run_id: RunId, *, by: str, reason: str) -> None:
    """Cancel a run that is not over: what was not sent never will be.

    One that is queued, waiting or held is cancelled with this commit. A running one is CANCELLING: nothing of it is
    claimed or written from this commit on, and whoever executes it ends it; what was claimed before may still arrive.
    Raises NotFound, Conflict (it is over), InvalidInput.
    """
    check_words(by, reason)
    prepared, run = await actions.lock_with_run(session, run_id)
    if run is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    state = RunState(run["state"])
    if state in (RunState.CANCELLING, RunState.CANCELLED):
        return
    if state.ended:
        raise Conflict(f"Run {run_id} is {state} and cannot be cancelled: it is over.")
    await actions.cancel(session, [row["action_id"] for row in prepared], reason=f"run cancelled by {by}")
    told: dict[str, JsonValue] = {"by": by, "reason": reason}
    if state is RunState.RUNNING:
        await execute(session, _RUNS["cancel_if_running"], run_id=run_id, reason=f"{by}: {reason}")
        await number(session, run_id, Event("run.cancelling", told))
        return
    await waits.deny_open(session, run_id, reason="the run was cancelled")
    await segments.settle(session, run_id, run["segment"], outcome="cancelled")
    await execute(
        session, _RUNS["stop_if_open"], run_id=run_id, state=RunState.CANCELLED, ended=True, reason=f"{by}: {reason}"
    )
    await number(session, run_id, Event("run.cancelled", told))
