"""One attempt of an effect: claimed, sent once, and what came of it recorded by its class of failure."""

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from steps import gate
from steps.drive import Claimed, Drive, may_count
from steps.kinds import NotSent
from steps.outcomes import Answered, attempt, call_body
from transactions import (
    ActionState,
    Event,
    Failure,
    FailureClass,
    Session,
    actions,
    attempts,
    failpoint,
    number,
    outbox,
    receipts,
    waits,
)

_PAUSE_S = 0.2
_TIMEOUT_S_MIN = 0.001
_PAUSE_S_MAX = 30.0
# A longer pause is the schedule's: it outlives this process, and holds nothing meanwhile.
_INLINE_PAUSE_S_MAX = 5.0
_PASSING = (FailureClass.TRANSIENT, FailureClass.RATE_LIMITED)


async def claim_and_send(drive: Drive, row: Mapping[str, Any]) -> None:
    """Send what is PREPARED, unless its limits are reached, its run takes no new work, or it may not be done now.

    What may have been done before a restore counts as sent, and is looked for.
    """
    if row["verify_first"]:
        action_id, worker_id = drive.ticket.action_id, drive.ticket.worker_id
        await drive.commit("effect.presume", lambda s: attempts.presume(s, action_id, worker_id=worker_id))
        return
    if (why := _enough(row)) is not None:
        await _give_up(drive, row, why)
        return

    began = time.monotonic()

    try:
        claimed = await drive.commit("effect.claim", lambda session: drive.gate(session).claim(drive.ticket, row))
    except gate.NotNow:
        await drive.back_off(ActionState.PREPARED, pause_s=_PAUSE_S_MAX, why="its run takes no new work now")
    except gate.Objected as error:
        if may_count(row):
            await _leave_to_a_person(drive, row, str(error))
        else:
            await _obey(drive)
    else:
        await send(drive, Claimed(claimed, began))


async def _obey(drive: Drive) -> None:
    """What the gate has to say, once more: ask anew and let the run wait for that, or cancel and let it go on."""
    action_id, worker_id = drive.ticket.action_id, drive.ticket.worker_id

    async def once(session: Session) -> None:
        if not await actions.still(session, action_id, ActionState.PREPARED):
            return
        before = drive.gate(session)
        objection = await before.objection(drive.request)
        if objection is None:
            return
        if objection.final:
            await actions.withdraw(session, action_id, reason=objection.why, worker_id=worker_id)
            return
        await before.ask_anew(objection)
        await outbox.park_effect(session, action_id, detail=objection.why)
        event = Event("approval.requested", {"action": action_id, "why": objection.why})
        await number(session, drive.run.run_id, event, worker_id=worker_id)
        await waits.ask(session, drive.run.run_id, action_id)

    await drive.commit("effect.objected", once)


def _enough(row: Mapping[str, Any]) -> str | None:
    """Which limit ends the attempts, in words."""
    tried = f"gave up after {row['attempt']} attempts"
    if row["attempt"] >= row["attempts_max"]:
        return f"{tried}: {row['reason']}"
    if row["failure"] in _PASSING and row["since_first_s"] > row["elapsed_s_max"]:
        return f"{tried} in over {row['elapsed_s_max']:g} s: {row['reason']}"
    return None


async def _give_up(drive: Drive, row: Mapping[str, Any], why: str) -> None:
    """FAILED; but where an attempt may have been taken, and the key was only sent again, a person has to look."""
    where = drive.where(row)
    action_id = drive.ticket.action_id
    if may_count(row):
        await _leave_to_a_person(drive, row, why)
        return
    await drive.commit(
        "effect.refuse",
        lambda session: attempts.refuse(session, action_id, reason=why, failure=row["failure"], **where),
    )


async def _leave_to_a_person(drive: Drive, row: Mapping[str, Any], why: str) -> None:
    await drive.commit(
        "effect.park",
        lambda session: attempts.leave_to_a_person(
            session, drive.ticket.action_id, reason=f"{why}, and an attempt may count", **drive.where(row)
        ),
    )


async def send(drive: Drive, claimed: Claimed) -> None:
    """Make the attempt that was claimed, and record what came of it.

    One that is over is not sent: others may believe that it is absent.
    """
    row = claimed.row
    action = await drive.action(row)
    over_at = claimed.began + row["attempt_s"]

    async def call() -> JsonValue:
        drive.bench.still_mine()
        if time.monotonic() > over_at:
            raise NotSent("its attempt was over before it was sent")
        failpoint("effect.before_send")
        answer = await call_body(drive.spec.body, action, drive.arguments)
        failpoint("effect.after_send")
        return drive.spec.keep(answer)

    outcome = await attempt(
        call,
        timeout_s=max(_TIMEOUT_S_MIN, over_at - time.monotonic()),
        classify=drive.spec.classify,
    )
    if isinstance(outcome, Answered):
        await drive.commit_result(
            "effect.answered",
            outcome.result,
            lambda session, result: receipts.receive(
                session, drive.ticket.action_id, source="answer", result=result, **drive.where(row)
            ),
        )
        return
    await asyncio.sleep(await _record(drive, row, outcome))


async def _record(drive: Drive, row: Mapping[str, Any], failure: Failure) -> float:
    """What each class of failure comes to. Seconds to wait before anything else is done."""
    where = drive.where(row)
    action_id, reason, kind = drive.ticket.action_id, failure.reason, failure.kind
    match kind:
        case FailureClass.TRANSIENT | FailureClass.RATE_LIMITED:
            pause_s = max(_backoff_s(row["attempt"]), failure.retry_after_s or 0.0)

            async def again(session: Session) -> None:
                await attempts.not_sent(session, action_id, reason=reason, failure=kind, **where)
                if pause_s > _INLINE_PAUSE_S_MAX:
                    await drive.give_back(session, pause_s=pause_s, why=reason)

            await drive.commit("effect.not_sent", again)
            return pause_s if pause_s <= _INLINE_PAUSE_S_MAX else 0.0
        case FailureClass.INVALID_INPUT | FailureClass.REJECTED:
            await drive.commit(
                "effect.refused", lambda s: attempts.refuse(s, action_id, reason=reason, failure=kind, **where)
            )
        case FailureClass.PERMISSION:
            await drive.commit(
                "effect.stopped", lambda s: attempts.not_sent(s, action_id, reason=reason, failure=kind, **where)
            )
        case FailureClass.UNKNOWN | FailureClass.CONFLICT:
            await drive.commit(
                "effect.unknown", lambda s: attempts.doubt(s, action_id, reason=reason, failure=kind, **where)
            )
    return 0.0


def _backoff_s(attempt: int) -> float:
    """Doubling from the first pause, with jitter so that many do not come at once."""
    return min(_PAUSE_S * 2.0 ** min(attempt - 1, 20), _PAUSE_S_MAX) * random.uniform(0.5, 1.0)  # noqa: S311
