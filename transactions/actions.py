"""The ledger of actions: intents are fenced, facts are not.

    PREPARED -> IN_FLIGHT -> SUCCEEDED | FAILED | UNKNOWN      UNKNOWN -> SUCCEEDED (found) | PREPARED (proved absent)
    IN_FLIGHT -> PREPARED (nothing came of it)   PREPARED -> CANCELLED | FAILED | UNKNOWN (an attempt before may count)

Lock order: actions before their run. The right to act on an effect is the claim of its delivery (`Ticket`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import epochs, outbox, waits
from transactions.canonical import canonical_json, request_hash
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import RequestChanged
from transactions.events import Event, Execution, number, number_fenced, number_open
from transactions.ids import ActionId, RunId, WorkerId
from transactions.statements import load
from transactions.states import ActionState, RunState

_ACTIONS = load("actions")
_APPROVALS = load("approvals")
_RUNS = load("runs")

Kind = Literal["transaction", "effect"]
Safety = Literal["transaction", "idempotent", "verify", "at_most_once"]
_SECONDS_MAX = 366 * 24 * 3600.0
_TIMES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class EffectLimits:
    """What bounds an effect.

    attempt_s: seconds after which an attempt is over. attempts_max: sends, but for those that met a rate limit.
    elapsed_s_max: seconds from the first attempt after which what is only passing is not tried again.
    verifications_max: verdicts on one attempt; after that a person is asked.
    """

    attempt_s: float = 30.0
    attempts_max: int = 10
    elapsed_s_max: float = 24 * 3600.0
    verifications_max: int = 20

    def __post_init__(self) -> None:
        seconds, times = (self.attempt_s, self.elapsed_s_max), (self.attempts_max, self.verifications_max)
        if not all(0 < each <= _SECONDS_MAX for each in seconds) or not all(1 <= each <= _TIMES_MAX for each in times):
            raise ValueError(
                "attempt_s and elapsed_s_max must be above 0 and at most a year, attempts_max and verifications_max "
                f"from 1 to {_TIMES_MAX}."
            )


@dataclass(frozen=True, slots=True)
class Request:
    """A call that changes something, as the model asked for it. `arguments` is JSON as recorded in the response."""

    action_id: ActionId
    turn: int
    position: int
    call_id: str
    agent: str
    tool: str
    kind: Kind
    safety: Safety
    arguments: JsonValue
    gated: bool
    limits: EffectLimits


@dataclass(frozen=True, slots=True)
class Ticket:
    """The claim of an effect's delivery: `attempt` of the delivery by `worker_id`. In a segment, with its execution."""

    action_id: ActionId
    attempt: int
    worker_id: WorkerId
    execution: Execution | None = None


async def prepare(session: AsyncSession, execution: Execution, request: Request) -> Mapping[str, Any]:
    """The action's row, made if it is new, and locked; as `get` shows it if it is settled.

    Raises RequestChanged when the id came with another request.
    """
    row = await insert_and_lock(session, execution, request)
    return await as_requested(session, row, request, then="Start a new run for the new request")


async def insert_and_lock(session: AsyncSession, execution: Execution, request: Request) -> Mapping[str, Any]:
    """The row under this id, whoever made it first and for what."""
    await execute(
        session,
        _ACTIONS["insert_if_new"],
        action_id=request.action_id,
        tenant=execution.tenant,
        run_id=execution.run_id,
        segment=execution.segment,
        turn=request.turn,
        position=request.position,
        call_id=request.call_id,
        agent=request.agent,
        tool=request.tool,
        kind=request.kind,
        safety=request.safety,
        request=canonical_json(request.arguments),
        request_hash=request_hash(request.arguments),
        gated=request.gated,
        **asdict(request.limits),
    )
    row = await fetch_one(session, _ACTIONS["lock"], action_id=request.action_id)
    assert row is not None
    return row


async def as_requested(
    session: AsyncSession, row: Mapping[str, Any], request: Request, *, then: str
) -> Mapping[str, Any]:
    """The locked row, if it is of this very request. Raises RequestChanged; `then`: what to do about that."""
    digest = request_hash(request.arguments)
    if (row["request_hash"], row["tool"], row["kind"]) != (digest, request.tool, request.kind):
        raise RequestChanged(
            f"Action {request.action_id} is recorded with another request ({row['tool']}, {row['request_hash'][:12]}; "
            f"now {request.tool}, {digest[:12]}). Nothing was sent. {then}."
        )
    # The receipts are read after the lock was waited for: its own statement saw them as they were before.
    return await get(session, request.action_id) if ActionState(row["state"]).settled else row


async def find(session: AsyncSession, action_id: ActionId) -> Mapping[str, Any] | None:
    """The action's row, locked; None: there is none of this id, or not yet."""
    return await fetch_one(session, _ACTIONS["lock"], action_id=action_id)


async def get(session: AsyncSession, action_id: ActionId) -> Mapping[str, Any]:
    """The action's row and what its attempts came to so far.

    By the database's clock `deadline_left_s` of the last attempt and `since_first_s`, since the first one was claimed;
    `unknown_attempts`; `asked`, the verdicts on the last attempt; `receipt_source` of its first receipt;
    `has_artifacts`, whether it saved any or its result is one.
    """
    row = await fetch_one(session, _ACTIONS["get"], action_id=action_id)
    assert row is not None, f"action {action_id} is in the ledger"
    return row


async def claim(session: AsyncSession, ticket: Ticket, *, attempt: int) -> Mapping[str, Any] | None:
    """PREPARED -> IN_FLIGHT under the ticket, as attempt `attempt + 1`. None: not now, or not any more: roll back.

    Raises Fenced when the ticket's execution no longer owns the run, Cancelling when the run is being cancelled.
    """
    row = await fetch_one(
        session,
        _ACTIONS["claim_prepared_with_ticket"],
        action_id=ticket.action_id,
        attempt=attempt,
        worker_id=ticket.worker_id,
        ticket=ticket.attempt,
        generation=ticket.execution.generation if ticket.execution else None,
    )
    if row is None:
        return None
    recorded = await fetch_one(
        session,
        _ACTIONS["record_attempt_if_ticket_still_held"],
        action_id=ticket.action_id,
        attempt=row["attempt"],
        tenant=row["tenant"],
        generation=row["run_generation"],
        worker_id=ticket.worker_id,
        ticket=ticket.attempt,
        deadline_at=row["attempt_deadline_at"],
    )
    if recorded is None:
        return None
    event = Event("action.claimed", {"action": ticket.action_id, "attempt": row["attempt"]})
    if ticket.execution is not None:
        await number_fenced(session, ticket.execution, event)
        return row
    if row["undoes"] is not None:  # asked for by a person, of a run that is over
        await number(session, row["run_id"], event, worker_id=ticket.worker_id)
        return row
    return row if await number_open(session, row["run_id"], event, worker_id=ticket.worker_id) else None


async def wake(session: AsyncSession, run_id: RunId, action_id: ActionId) -> None:
    """An action has settled. After `number`, which holds the run row's lock.

    It may have been asked about anew when an answer to an earlier attempt came: nothing is left to decide then.
    """
    why = "the action has settled"
    if await fetch_one(session, _APPROVALS["void_pending"], action_id=action_id, reason=why) is not None:
        await execute(session, _APPROVALS["discard_reminders"], action_ids=[action_id])
    kinds: Sequence[waits.WaitKind] = ("delivery", "verification", "approval")
    await waits.settle(session, run_id, action_id, kinds=kinds, outcome="go", reason=None)
    await waits.wake(session, run_id)


async def cancel_if_run_is_over(session: AsyncSession, run_id: RunId, action_id: ActionId) -> None:
    """After `number`, which holds the run row's lock. Nobody would ever send it, and nobody else would cancel it.

    So a run that is being cancelled never has an action that is PREPARED.

    What undoes an effect goes on: the run was over when a person asked for it.
    """
    row = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
    if row is None or row["undoes"] is not None:
        return
    run = await fetch_one(session, _RUNS["identity"], run_id=run_id)
    assert run is not None
    if RunState(run["state"]).takes_nothing_new:
        await cancel(session, [action_id], reason=f"the run is {run['state']}")


async def still(session: AsyncSession, action_id: ActionId, state: str) -> bool:
    """Whether the action is in this state, which it then keeps until the caller's commit."""
    row = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
    return row is not None and row["state"] == state


async def lock_unsettled(session: AsyncSession, run_id: RunId) -> Sequence[Mapping[str, Any]]:
    """Lock the run's PREPARED, IN_FLIGHT and UNKNOWN actions, before the run row is locked."""
    return await fetch_all(session, _ACTIONS["lock_unsettled_of_run"], run_id=run_id)


async def lock_with_run(
    session: AsyncSession, run_id: RunId
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
    """The same; of the actions those that are PREPARED."""
    unsettled, run = await lock_unsettled_with_run(session, run_id)
    return prepared(unsettled), run


async def lock_unsettled_with_run(
    session: AsyncSession, run_id: RunId
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
    """Lock the run's unsettled actions and then its row, in this order. Returns them and the run.

    More may be prepared between the two: then all is released and locked anew, so that none is left out.
    """
    while True:
        attempt = await session.begin_nested()
        unsettled = await lock_unsettled(session, run_id)
        run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
        locked = [row["action_id"] for row in unsettled]
        if not await fetch_all(session, _ACTIONS["prepared_of_run_beyond"], run_id=run_id, action_ids=locked):
            await attempt.commit()
            return unsettled, run
        await attempt.rollback()


async def lock_prepared(session: AsyncSession, run_id: RunId) -> Sequence[Mapping[str, Any]]:
    """Those that are PREPARED now, for a caller that holds the run row's lock already."""
    return prepared(await lock_unsettled(session, run_id))


def prepared(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Those of the actions that were not sent."""
    return [row for row in rows if row["state"] == ActionState.PREPARED]


async def cancel(session: AsyncSession, action_ids: Sequence[ActionId], *, reason: str) -> list[ActionId]:
    """CANCELLED for those still PREPARED, which are returned; their deliveries are discarded, their approvals void.

    What may have been taken when its key was sent before, or done in what a restore has lost, is UNKNOWN instead, and
    on the desk.
    """
    lost = f"{reason}, and {epochs.LOST}: a person has to say what happened"
    for action_id in await epochs.presume_sent(session, action_ids, reason=lost):
        await outbox.park_effect(session, action_id, detail=lost)
    rows = await fetch_all(session, _ACTIONS["cancel_if_prepared"], action_ids=list(action_ids), reason=reason)
    cancelled = [ActionId(row["action_id"]) for row in rows]
    why = f"{reason}, and an attempt of it may count: a person has to say what happened"
    for row in await fetch_all(session, _ACTIONS["unknown_if_maybe_taken"], action_ids=list(action_ids), reason=why):
        await outbox.park_effect(session, ActionId(row["action_id"]), detail=why)
    if cancelled:
        await outbox.close_effect(session, cancelled, state="discarded", detail=reason)
        await execute(session, _APPROVALS["void_of_actions"], action_ids=cancelled, reason=reason)
        await execute(session, _APPROVALS["discard_reminders"], action_ids=cancelled)
    return cancelled


async def withdraw(session: AsyncSession, action_id: ActionId, *, reason: str, worker_id: WorkerId) -> bool:
    """Cancel one action that may not be done, number it, and let its run go on. False: it is not PREPARED any more."""
    row = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
    assert row is not None
    if row["state"] != ActionState.PREPARED:
        return False
    event = Event("action.cancelled", {"action": action_id, "reason": reason})
    await number(session, row["run_id"], event, worker_id=worker_id)
    await cancel(session, [action_id], reason=reason)
    await wake(session, row["run_id"], action_id)
    return True
