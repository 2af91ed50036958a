"""What became of an attempt whose outcome nobody knows: ask the other side on a schedule, then ask a person."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from pydantic import JsonValue

from steps.drive import Drive
from steps.kinds import Absent, Found, Unsure
from steps.spec import Unkept
from transactions import ActionState, FailureClass, Session, attempts, failpoint, receipts, storable_reason

_PAUSE_S = 0.5
_ASKS = ": a person has to say what happened"
_PAUSE_S_MAX = 3600.0
# A longer pause is the schedule's.
_INLINE_PAUSE_S_MAX = 1.0


async def resolve(drive: Drive, row: Mapping[str, Any]) -> None:
    """Settle the last attempt, have it sent again if it was not taken, ask again later, or leave it to a person."""
    action_id, where = drive.ticket.action_id, drive.where(row)
    if (why := _nobody_to_ask(row)) is not None:
        await drive.commit("effect.park", lambda s: attempts.leave_to_a_person(s, action_id, reason=why, **where))
        return
    clock = asyncio.get_running_loop().time
    over_at = clock() + float(row["deadline_left_s"])  # until then something of the attempt may still arrive there
    verdict = await _verdict(drive, row)
    if isinstance(verdict, Absent) and (left_s := over_at - clock()) > 0:
        await asyncio.sleep(left_s)
        verdict = await _verdict(drive, row)
    evidence = verdict.evidence
    match verdict:
        case Found():

            async def found(session: Session, result: JsonValue) -> None:
                await attempts.judge(session, action_id, verdict="found", evidence=evidence, **where)
                await receipts.receive(session, action_id, source="verification", result=result, **where)

            await drive.commit_result("effect.found", verdict.result, found)
        case Absent():

            async def absent(session: Session) -> None:
                await attempts.judge(session, action_id, verdict="absent", evidence=evidence, **where)
                await attempts.absent(session, action_id, **where)

            await drive.commit("effect.absent", absent)
        case Unsure():
            await _ask_again(drive, row, evidence)


def _nobody_to_ask(row: Mapping[str, Any]) -> str | None:
    """Why only a person can say what became of it."""
    if row["failure"] == FailureClass.CONFLICT:
        return str(row["reason"])
    match row["safety"]:
        case "at_most_once":
            said = row["reason"] or "sent, and no answer recorded"
            return said if said.endswith(_ASKS) else f"{said}{_ASKS}"
        case "idempotent" if row["attempt"] >= row["attempts_max"]:
            return f"no answer to any of {row['attempt']} attempts: {row['reason']}"
        case "idempotent" if row["since_first_s"] > row["elapsed_s_max"]:
            return f"no answer in {row['elapsed_s_max']:g} s, after which its key may not be known there any more"
        case "verify" if row["asked"] >= row["verifications_max"]:
            return f"asked {row['asked']} times, and the other side could not tell"
        case _:
            return None


async def _ask_again(drive: Drive, row: Mapping[str, Any], evidence: JsonValue) -> None:
    """Nobody can tell yet: after a pause that doubles, on the relay's schedule when it gets long."""
    action_id, where = drive.ticket.action_id, drive.where(row)

    async def unsure(session: Session) -> None:
        await attempts.doubt(session, action_id, reason="verification cannot tell yet", **where)
        await attempts.judge(session, action_id, verdict="unsure", evidence=evidence, **where)

    await drive.commit("effect.unsure", unsure)
    pause_s = min(_PAUSE_S * 2.0 ** min(row["asked"], 20), _PAUSE_S_MAX)
    if pause_s > _INLINE_PAUSE_S_MAX and row["asked"] + 1 < row["verifications_max"]:
        await drive.back_off(ActionState.UNKNOWN, pause_s=pause_s, why="unsure")
    else:
        await asyncio.sleep(min(pause_s, _INLINE_PAUSE_S_MAX))


async def _verdict(drive: Drive, row: Mapping[str, Any]) -> Found[Any] | Absent | Unsure:
    if drive.spec.verify is None:
        # The other side honours the key, so sending again with the same one is harmless once the attempt is over.
        return Absent("idempotent: the same key is sent again")
    try:
        async with asyncio.timeout(row["attempt_s"]):
            failpoint("effect.before_verify")
            verdict = await drive.spec.verify(await drive.action(row), **drive.arguments)
            failpoint("effect.after_verify")
    except Exception as error:
        return Unsure(storable_reason(f"the verifier failed: {type(error).__name__}: {error}"))
    if isinstance(verdict, Found):
        found = cast("Found[Any]", verdict)
        try:
            return Found(drive.spec.keep(found.result), found.evidence)
        except Unkept as error:
            return Unsure(storable_reason(f"found, but {error}"))
    if not isinstance(verdict, Absent | Unsure):
        return Unsure(f"the verifier answered {type(verdict).__name__}, not Found, Absent or Unsure")
    return verdict
