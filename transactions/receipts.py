"""Receipts: the verifiable answer to one attempt. Facts, accepted from anyone at any time, kept for ever.

The first one settles its action. A second one, or one against a verdict or a person's decision, is kept with its
contradiction, so that a real duplicate is never hidden.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, attempts, outbox
from transactions.canonical import storable_json
from transactions.database import execute, fetch_all, fetch_one
from transactions.events import Event, Execution, number
from transactions.ids import ActionId, WorkerId
from transactions.statements import load
from transactions.states import ActionState

_log = logging.getLogger("surefoot.receipts")
_ACTIONS = load("actions")
_DECISIONS = load("decisions")
_SAID: Mapping[str, str] = MappingProxyType(
    {"succeeded": "came to another result", "absent": "did not happen", "failed": "failed"}
)
Source = Literal["answer", "verification", "person"]


async def receive(
    session: AsyncSession,
    action_id: ActionId,
    *,
    attempt: int,
    source: Source,
    result: JsonValue,
    worker_id: WorkerId,
) -> None:
    """Record a receipt, whoever brings it and whenever. The first one settles the action and wakes its run.

    A second receipt, or one against a verdict or a decision, is kept with its contradiction. One that comes after its
    run was removed is in the log, and nowhere else.
    """
    text = storable_json(result)
    stored = json.loads(text)
    row = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
    if row is None:
        _log.critical("attempt %d of %s was answered after its run was removed: %s", attempt, action_id, text)
        return
    earlier = await fetch_all(session, _ACTIONS["receipts_of"], action_id=action_id)
    if any(
        (r["attempt"], r["source"], r["worker_id"], r["result"]) == (attempt, source, worker_id, stored)
        for r in earlier
    ):
        return  # the same receipt once more: the answer to its commit was lost
    contradiction = None
    if source != "person":  # a decision is recorded with its receipt, and is taken only while nothing is settled
        contradiction = await _contradiction(session, row, earlier, attempt=attempt, source=source, result=stored)
    moved = await fetch_one(session, _ACTIONS["succeed_if_unsettled"], action_id=action_id, result=text)
    await execute(
        session,
        _ACTIONS["append_receipt"],
        action_id=action_id,
        attempt=attempt,
        source=source,
        result=text,
        contradiction=contradiction,
        worker_id=worker_id,
    )
    await attempts.finish_attempt(session, action_id, attempt, "answered", source)
    await outbox.close_effect(session, [action_id], state="delivered", detail=source)
    data: dict[str, JsonValue] = {"action": action_id, "attempt": attempt, "source": source}
    if contradiction:
        data["contradiction"] = contradiction
    kind = "receipt.kept" if moved is None else "action.succeeded"
    await number(session, row["run_id"], Event(kind, data), worker_id=worker_id)
    await actions.wake(session, row["run_id"], action_id)


async def _contradiction(
    session: AsyncSession,
    row: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    *,
    attempt: int,
    source: Source,
    result: JsonValue,
) -> str | None:
    if any(receipt["attempt"] != attempt for receipt in earlier):
        return f"attempt {attempt} was answered too: it may have happened twice"
    if earlier and source == "answer" and any(receipt["source"] == "answer" for receipt in earlier):
        return f"a second answer to attempt {attempt}"
    for said in await fetch_all(session, _DECISIONS["of_action"], action_id=row["action_id"]):
        if said["attempt"] == attempt and (said["outcome"], said["result"]) != ("succeeded", result):
            return f"{said['decided_by']} had said that attempt {attempt} {_SAID[said['outcome']]}"
    if row["state"] in (ActionState.FAILED, ActionState.CANCELLED):
        return f"the action was {row['state']}"
    absent = await fetch_one(
        session, _ACTIONS["absent_verdicts_of_attempt"], action_id=row["action_id"], attempt=attempt
    )
    assert absent is not None
    if absent["absent"] and source == "answer":
        return f"attempt {attempt} had been verified as absent"
    return None


async def complete_transaction(
    session: AsyncSession, execution: Execution, action_id: ActionId, *, result: JsonValue
) -> None:
    """PREPARED -> SUCCEEDED together with the rows the transaction wrote; its receipt is its own."""
    text = storable_json(result)
    row = await fetch_one(
        session,
        _ACTIONS["succeed_transaction_if_prepared"],
        action_id=action_id,
        result=text,
        generation=execution.generation,
        worker_id=execution.worker_id,
    )
    assert row is not None, "the caller read PREPARED in this transaction, under the row's lock"
    await execute(
        session,
        _ACTIONS["append_receipt"],
        action_id=action_id,
        attempt=1,
        source="transaction",
        result=text,
        contradiction=None,
        worker_id=execution.worker_id,
    )
