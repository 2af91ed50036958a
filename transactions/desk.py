"""The operator's desk: what nobody knows of effects, what contradicts a settled one, and what a person says of it.

A decision is a fact, as a receipt is: taken from anyone at any time, and not fenced. One counts for an attempt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, attempts, outbox, receipts
from transactions.canonical import canonical_json, storable_reason
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, InvalidInput, NotFound
from transactions.events import Event, number
from transactions.ids import ActionId, RunId, Tenant, WorkerId
from transactions.statements import load
from transactions.states import ActionState
from transactions.words import check_words, checked_json

_ACTIONS = load("actions")
_DECISIONS = load("decisions")
RESULT_BYTES_MAX = 512 * 1024
EVIDENCE_BYTES_MAX = 64 * 1024
# Verdicts to get from now on when a person wants the other side asked again.
VERIFICATIONS_MORE = 5

Outcome = Literal["succeeded", "absent", "failed"]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """`unknown`: rows of `surefoot.unknown_actions` that a person may decide, the longest ones first.

    `contradictions`: rows of `surefoot.contradictions`, the newest first.
    """

    unknown: Sequence[Row]
    contradictions: Sequence[Row]


@dataclass(frozen=True, slots=True)
class File:
    """All there is about one action: its row, and in their order its attempts, every verdict with its evidence, the
    receipts, what people decided, and which receipts contradict.

    `unknown`: its row of `surefoot.unknown_actions`, while it is there.
    """

    action: Row
    unknown: Row | None
    attempts: Sequence[Row]
    verifications: Sequence[Row]
    receipts: Sequence[Row]
    decisions: Sequence[Row]
    contradictions: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Statement:
    """What a person says became of the last attempt.

    `result`: what the tool would have answered, if it succeeded. `evidence`: how they know, as JSON, such as the id
    that the other side gave it. `authenticated`: whether somebody made sure that it is they.
    """

    outcome: Outcome
    by: str
    reason: str | None = None
    result: JsonValue = None
    evidence: JsonValue = None
    authenticated: bool = False


async def look(session: AsyncSession, tenant: Tenant, *, limit: int) -> Desk:
    """What is on the desk, at most `limit` of each."""
    return Desk(
        await fetch_all(session, _DECISIONS["unknown"], tenant=tenant, limit=limit),
        await fetch_all(session, _DECISIONS["contradictions"], tenant=tenant, limit=limit),
    )


async def action(session: AsyncSession, action_id: ActionId) -> Row:
    """The action's row with its `run_state`. Raises NotFound."""
    row = await fetch_one(session, _DECISIONS["action"], action_id=action_id)
    if row is None:
        raise NotFound(f"No action {action_id}: see `surefoot actions list`.")
    return row


async def file(session: AsyncSession, action_id: ActionId) -> File:
    """Raises NotFound."""

    async def of_action(statement: str) -> Sequence[Row]:
        return await fetch_all(session, _DECISIONS[statement], action_id=action_id)

    return File(
        action=await action(session, action_id),
        unknown=next(iter(await of_action("unknown_of_action")), None),
        attempts=await of_action("attempts_of_action"),
        verifications=await of_action("verifications_of_action"),
        receipts=await of_action("receipts_of_action"),
        decisions=await of_action("of_action"),
        contradictions=await of_action("contradictions_of_action"),
    )


async def settle(session: AsyncSession, action_id: ActionId, says: Statement) -> RunId:
    """One decision counts. What follows from it, and the run going on, are of the same commit.

    Raises NotFound, Conflict (decided, settled or on its way; absent before the deadline or with no attempt left),
    InvalidInput.
    """
    check(says)
    locked = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
    if locked is None:
        raise NotFound(f"No action {action_id}: see `surefoot actions list`.")
    # Read after the lock was waited for: its own statement saw the rest as it was before.
    row = await fetch_one(session, _DECISIONS["unknown_of_action"], action_id=action_id)
    if row is None:
        raise Conflict(await _why_not(session, locked))
    if says.outcome not in row["can"]:
        raise Conflict(_why_not_now(row))
    await _record(session, action_id, says)
    await attempts.finish_attempt(session, action_id, row["attempt"], "unknown", f"no answer; {says.by} looked into it")
    match says.outcome:
        case "succeeded":
            await receipts.receive(
                session,
                action_id,
                attempt=row["attempt"],
                source="person",
                result=says.result,
                worker_id=_person(says),
            )
        case "absent":
            await _send_again(session, row, says)
        case "failed":
            why = f"{says.by} says that it failed: {says.reason}"
            moved = await attempts.refuse(
                session, action_id, attempt=row["attempt"], reason=why, worker_id=_person(says)
            )
            assert moved, "the view said so under the action's lock"
    return RunId(row["run_id"])


async def ask_again(session: AsyncSession, action_id: ActionId, *, by: str) -> RunId:
    """Have the other side asked once more, now, and on the schedule for a while. Raises NotFound, Conflict."""
    check_words(by, None)
    locked = await action(session, action_id)
    row = await fetch_one(session, _ACTIONS["ask_more_if_unknown"], action_id=action_id, more=VERIFICATIONS_MORE)
    if row is None:
        raise Conflict(
            f"Action {action_id} is {locked['state']} ({locked['safety']}): only an UNKNOWN one that has a verifier "
            "and no conflict can be asked about. Look there yourself and say what happened: `surefoot actions settle`."
        )
    await outbox.due_now(session, action_id, detail=f"{by} wants it asked again")
    await number(session, RunId(row["run_id"]), Event("action.asked_again", {"action": action_id, "by": by}))
    return RunId(row["run_id"])


async def _record(session: AsyncSession, action_id: ActionId, says: Statement) -> None:
    await execute(
        session,
        _DECISIONS["record"],
        action_id=action_id,
        outcome=says.outcome,
        decided_by=says.by,
        authenticated=says.authenticated,
        reason=says.reason,
        result=canonical_json(says.result) if says.outcome == "succeeded" else None,
        evidence=None if says.evidence is None else canonical_json(says.evidence),
    )


async def _send_again(session: AsyncSession, row: Row, says: Statement) -> None:
    """PREPARED, and its delivery due at once: any worker's relay sends it. Nothing is sent for a run that is over."""
    did_not = "may be sent again" if row["state"] == ActionState.PREPARED else "did not happen"
    why = f"{says.by} says that attempt {row['attempt']} {did_not}"
    action_id, run_id = ActionId(row["action_id"]), RunId(row["run_id"])
    moved = await fetch_one(
        session,
        _ACTIONS["prepare_again_if_decided_absent"],
        action_id=action_id,
        attempt=row["attempt"],
        reason=storable_reason(why),
    )
    assert moved is not None, "the view said so under the action's lock"
    await outbox.due_now(session, action_id, detail=why)
    data: dict[str, JsonValue] = {"action": action_id, "attempt": row["attempt"], "by": says.by}
    await number(session, run_id, Event("action.absent", data))
    await actions.cancel_if_run_is_over(session, run_id, action_id)


def _person(says: Statement) -> WorkerId:
    return WorkerId(f"person:{says.by}")


def check(says: Statement) -> None:
    """Within limits, and of one piece. Raises InvalidInput."""
    check_words(says.by, says.reason)
    if says.outcome == "failed" and not (says.reason or "").strip():
        raise InvalidInput("Say why it failed (--reason WORDS): the agent is told.")
    if says.outcome != "succeeded" and says.result is not None:
        raise InvalidInput(f"What is {says.outcome} has no result: leave it out, or say that it succeeded.")
    checked_json("result", says.result, bytes_max=RESULT_BYTES_MAX)
    checked_json("evidence", says.evidence, bytes_max=EVIDENCE_BYTES_MAX)


async def _why_not(session: AsyncSession, row: Row) -> str:
    """For an action that is neither on its way nor unknown."""
    decided = await fetch_all(session, _DECISIONS["of_action"], action_id=row["action_id"])
    known = f"Action {row['action_id']} is {row['state']}"
    if decided:
        last = decided[-1]
        said = f"{last['decided_by']} said {last['outcome']} of attempt {last['attempt']} at {last['at']:%H:%M:%S %Z}"
        return f"{known}: {said}, and one decision counts."
    if ActionState(row["state"]).settled:
        return f"{known} and settled: there is nothing left to decide."
    return f"{known} and nothing of it is unknown: there is nothing to decide."


def _why_not_now(row: Row) -> str:
    action_id, deadline = row["action_id"], row["attempt_deadline_at"]
    if not row["can"]:
        return f"Action {action_id} is on its way since {row['since']:%H:%M:%S %Z}: {row['next']}."
    if row["attempt"] >= row["attempts_max"]:
        return f"All {row['attempts_max']} attempts of {action_id} are used, so it cannot be sent again: say failed."
    return (
        f"Attempt {row['attempt']} of {action_id} may still arrive there until {deadline:%H:%M:%S %Z}: "
        "look again after that, and then say absent."
    )
