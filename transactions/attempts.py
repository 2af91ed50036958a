"""What attempts of an effect come to, as the ledger has it. Facts: taken from whoever made or verified the attempt."""

from typing import Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, epochs, outbox
from transactions.canonical import storable_json, storable_reason
from transactions.database import execute, fetch_one
from transactions.events import Event, number
from transactions.failures import FailureClass
from transactions.ids import ActionId, WorkerId
from transactions.statements import load

_ACTIONS = load("actions")
Verdict = Literal["found", "absent", "unsure"]


async def finish_attempt(session: AsyncSession, action_id: ActionId, attempt: int, outcome: str, detail: str) -> None:
    await execute(
        session,
        _ACTIONS["finish_attempt"],
        action_id=action_id,
        attempt=attempt,
        outcome=outcome,
        detail=storable_reason(detail),
    )


async def refuse(
    session: AsyncSession,
    action_id: ActionId,
    *,
    attempt: int,
    reason: str,
    worker_id: WorkerId,
    failure: FailureClass | None = None,
) -> bool:
    """The other side refused, or a limit was reached: FAILED with the reason, and the run goes on."""
    row = await fetch_one(
        session, _ACTIONS["fail_if_attempt"], action_id=action_id, attempt=attempt, reason=reason, failure=failure
    )
    if row is None:
        return False
    await finish_attempt(session, action_id, attempt, "refused", reason)
    await outbox.close_effect(session, [action_id], state="dead", detail=reason)
    data: dict[str, JsonValue] = {"action": action_id, "reason": reason, "failure": failure}
    await number(session, row["run_id"], Event("action.failed", data), worker_id=worker_id)
    await actions.wake(session, row["run_id"], action_id)
    return True


async def doubt(
    session: AsyncSession,
    action_id: ActionId,
    *,
    attempt: int,
    reason: str,
    worker_id: WorkerId,
    failure: FailureClass = FailureClass.UNKNOWN,
) -> bool:
    """Something was sent and nobody knows the outcome: UNKNOWN, until it is verified."""
    row = await fetch_one(
        session,
        _ACTIONS["unknown_if_in_flight_attempt"],
        action_id=action_id,
        attempt=attempt,
        reason=reason,
        failure=failure,
    )
    if row is None:
        return False
    await finish_attempt(session, action_id, attempt, "unknown", reason)
    data: dict[str, JsonValue] = {"action": action_id, "reason": reason, "failure": failure}
    await number(session, row["run_id"], Event("action.unknown", data), worker_id=worker_id)
    return True


async def presume(session: AsyncSession, action_id: ActionId, *, worker_id: WorkerId) -> None:
    """It may have been done in what a restore has lost: UNKNOWN, so that it is verified before it is sent."""
    for attempt in (await epochs.presume_sent(session, [action_id], reason=epochs.LOST)).values():
        row = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
        assert row is not None
        data: dict[str, JsonValue] = {"action": action_id, "reason": epochs.LOST, "attempt": attempt}
        await number(session, row["run_id"], Event("action.unknown", data), worker_id=worker_id)


async def leave_to_a_person(
    session: AsyncSession, action_id: ActionId, *, attempt: int, reason: str, worker_id: WorkerId
) -> bool:
    """UNKNOWN, and nobody is asked any more but a person: off the schedule, on the desk. False: not this attempt."""
    row = await fetch_one(
        session, _ACTIONS["unknown_for_a_person"], action_id=action_id, attempt=attempt, reason=reason
    )
    if row is None:
        return False
    await finish_attempt(session, action_id, attempt, "unknown", reason)
    await outbox.park_effect(session, action_id, detail=reason)
    event = Event("action.on_the_desk", {"action": action_id, "reason": reason})
    await number(session, row["run_id"], event, worker_id=worker_id)
    return True


async def not_sent(
    session: AsyncSession,
    action_id: ActionId,
    *,
    attempt: int,
    reason: str,
    worker_id: WorkerId,
    failure: FailureClass = FailureClass.TRANSIENT,
) -> bool:
    """Nothing came of the attempt there: back to PREPARED, to be sent again.

    Only what is transient uses up an attempt: a rate limit is bounded by time, and a permission by a person, to whom it
    is left, off the schedule and on the desk, until they have put it right.
    """
    row = await fetch_one(
        session,
        _ACTIONS["prepare_again_if_not_sent"],
        action_id=action_id,
        attempt=attempt,
        reason=reason,
        failure=failure,
        more=0 if failure is FailureClass.TRANSIENT else 1,
    )
    if row is None:
        return False
    await finish_attempt(session, action_id, attempt, "not_sent", reason)
    stopped = failure is FailureClass.PERMISSION
    if stopped:
        await outbox.close_effect(session, [action_id], state="dead", detail=reason)
    data: dict[str, JsonValue] = {"action": action_id, "reason": reason, "failure": failure}
    kind = "action.on_the_desk" if stopped else "action.not_sent"
    await number(session, row["run_id"], Event(kind, data), worker_id=worker_id)
    await actions.cancel_if_run_is_over(session, row["run_id"], action_id)
    return True


async def judge(
    session: AsyncSession,
    action_id: ActionId,
    *,
    attempt: int,
    verdict: Verdict,
    evidence: JsonValue,
    worker_id: WorkerId,
) -> int:
    """Keep a verdict with its evidence. Returns how many there are. What follows from it is the caller's next call."""
    row = await fetch_one(session, _ACTIONS["count_verification"], action_id=action_id)
    assert row is not None
    await execute(
        session,
        _ACTIONS["record_verification"],
        action_id=action_id,
        attempt=attempt,
        verdict=verdict,
        evidence=storable_json(evidence),
        worker_id=worker_id,
    )
    return int(row["verifications"])


async def absent(session: AsyncSession, action_id: ActionId, *, attempt: int, worker_id: WorkerId) -> bool:
    """Proved absent after the attempt's own deadline: back to PREPARED. False: the deadline is still to come."""
    row = await fetch_one(
        session,
        _ACTIONS["prepare_again_if_absent_after_deadline"],
        action_id=action_id,
        attempt=attempt,
        reason="verified as absent",
    )
    if row is None:
        return False
    await finish_attempt(session, action_id, attempt, "unknown", "no answer; verified as absent")
    await number(
        session, row["run_id"], Event("action.absent", {"action": action_id, "attempt": attempt}), worker_id=worker_id
    )
    await actions.cancel_if_run_is_over(session, row["run_id"], action_id)
    return True
