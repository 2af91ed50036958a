"""A run: start it, look at it, cancel it."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import psycopg
from pydantic import JsonValue
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, steering, stopping, waits
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, Forbidden, InvalidInput, NotFound, QueueFull, SurefootError, UnknownAgent
from transactions.events import Event, number
from transactions.ids import RunId, Tenant
from transactions.statements import load
from transactions.states import RunState
from transactions.words import check_words, checked_json

_RUNS = load("runs")
_KEY_CHARACTERS_MAX = 255
_INPUT_BYTES_MAX = 1024 * 1024
PRIORITY_MAX = 100
_RETRY_AFTER_S = 5
_REFUSALS: Mapping[str, type[SurefootError]] = MappingProxyType(
    {"SF001": Conflict, "SF002": UnknownAgent, "SF003": Forbidden, "SF006": InvalidInput}
)
# As the database writes it, with spaces and without exponents, an input may be longer than its canonical text.
_TOO_LARGE = ("runs_input_check", "schedules_input_check")


async def start(
    session: AsyncSession,
    *,
    agent: str,
    input: JsonValue,
    key: str | None,
    tenant: Tenant,
    principal: str,
    priority: int = 0,
    not_before: datetime | None = None,
) -> RunId:
    """Start a run in the caller's transaction. The same key and input is the same run.

    priority: from -100 to 100, the higher first within its tenant. not_before: when it may begin; None: at once.
    Raises Conflict (the key came with another input), UnknownAgent, Forbidden (the tenant), InvalidInput, QueueFull.
    """
    text = canonical_input(input)
    if key is not None and not 1 <= len(key) <= _KEY_CHARACTERS_MAX:
        raise InvalidInput(f"An idempotency key has 1 to {_KEY_CHARACTERS_MAX} characters: send a shorter one.")
    check_priority(priority)
    if not_before is not None and not_before.tzinfo is None:
        raise InvalidInput(f"{not_before.isoformat()} has no time zone: write it as 2026-11-03T09:00:00+01:00.")
    try:
        row = await fetch_one(
            session,
            _RUNS["start"],
            agent=agent,
            input=text,
            key=key,
            tenant=tenant,
            principal=principal,
            priority=priority,
            not_before=not_before,
        )
    except DBAPIError as error:
        raise _start_error(error) from error
    assert row is not None
    return RunId(row["run_id"])


def canonical_input(input: JsonValue) -> str:
    """The input as it is stored. Raises InvalidInput."""
    return checked_json("input", input, bytes_max=_INPUT_BYTES_MAX)


def refused_as_too_large(error: DBAPIError) -> InvalidInput | None:
    """What to raise where the database has refused an input that it would have to write in more bytes than may be."""
    if isinstance(error.orig, psycopg.Error) and error.orig.diag.constraint_name in _TOO_LARGE:
        return InvalidInput(f"The input is over {_INPUT_BYTES_MAX} bytes: give a reference to it instead.")
    return None


def check_priority(priority: int) -> None:
    """Raises InvalidInput."""
    if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise InvalidInput(f"A priority is from -{PRIORITY_MAX} to {PRIORITY_MAX}, and this is {priority}: correct it.")


def _start_error(error: DBAPIError) -> Exception:
    too_large = refused_as_too_large(error)
    if too_large is not None:
        return too_large
    if isinstance(error.orig, psycopg.Error):
        message = (error.orig.diag.message_primary or str(error.orig)).strip()
        message = message[0].upper() + message[1:]
        known = _REFUSALS.get(error.orig.sqlstate or "")
        if known is not None:
            return known(message)
        if error.orig.sqlstate == "SF005":
            after = re.search(r"\d+", error.orig.diag.message_detail or "")
            return QueueFull(f"{message}.", retry_after_s=int(after[0]) if after else _RETRY_AFTER_S)
    return error


async def status(session: AsyncSession, run_id: RunId) -> Mapping[str, Any]:
    """The run's row of `surefoot.run_status`. Raises NotFound."""
    row = await fetch_one(session, _RUNS["get"], run_id=run_id)
    if row is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    return row


async def identity(session: AsyncSession, run_id: RunId) -> Mapping[str, Any]:
    """`run_id`, `tenant`, `agent`, `input`, `principal`: what deps are made from. Whether it has `ended`; by which
    `agent_version` it was begun, if any, and the `state_version` that this one wrote. Raises NotFound."""
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


async def release(session: AsyncSession, run_id: RunId, *, by: str) -> None:
    """Let a held run go on from its record; it waits again where something it waited for is open. One that runs and is
    asked to be held at its next boundary is not held there.

    A version that refused it may try again. Raises NotFound, Conflict (it is not held, nor asked to be).
    """
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    if await fetch_one(session, _RUNS["unask_if_hold_is_asked"], run_id=run_id) is not None:
        await number(session, run_id, Event("run.released", {"by": by}))
        return
    if run["state"] != RunState.HELD:
        raise Conflict(f"Run {run_id} is {run['state']}, not held: there is nothing to release.")
    await steering.go_on(session, run, by=by, anywhere=True)


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
    await stopping.settle(session, run_id, run["segment"], outcome="cancelled")
    await execute(
        session, _RUNS["stop_if_open"], run_id=run_id, state=RunState.CANCELLED, ended=True, reason=f"{by}: {reason}"
    )
    await number(session, run_id, Event("run.cancelled", told))
