"""A segment of a run: begin it under a new generation, end it, and give up one that the engine has lost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, approvals, artifacts, cancelling, messages, outbox, principals, revisions, waits
from transactions.canonical import canonical_json, storable_json
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Fenced
from transactions.events import Event, Execution, number, number_done, number_fenced
from transactions.ids import ActionId, RunId, Tenant, WorkerId
from transactions.statements import load
from transactions.states import ActionState, ApprovalState, RunState
from transactions.waits import Wait

_RUNS = load("runs")
_SEGMENTS = load("segments")
_STEPS = load("steps")


@dataclass(frozen=True, slots=True)
class Begun:
    """What an execution of a segment starts from. `frozen` was fixed by the segment's first execution."""

    execution: Execution
    agent: str
    input: JsonValue
    principal: str
    frozen: Mapping[str, Any]
    history: list[JsonValue]
    stored: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a segment ends. `state` completed, failed, waiting, held, or queued (the run goes on in the next segment);
    cancelled, when it stopped because the run is being cancelled: then it ends so whatever the ending says.

    `messages` are those not stored yet, from number `first_seq` on.
    """

    state: Literal[
        RunState.COMPLETED, RunState.FAILED, RunState.WAITING, RunState.HELD, RunState.QUEUED, RunState.CANCELLED
    ]
    turns: int
    usage: JsonValue
    output: JsonValue = None
    reason: str | None = None
    waits: Sequence[Wait] = ()
    messages: Sequence[JsonValue] = ()
    first_seq: int = 0


async def begin(
    session: AsyncSession,
    *,
    run_id: RunId,
    n: int,
    worker_id: WorkerId,
    versions: Mapping[str, str],
    stalls_max: int,
    turns_max: Mapping[str, int],
) -> Begun | None:
    """Take a new generation of the run's current segment. None: there is nothing for this execution to do.

    A run that was being cancelled when its worker died is cancelled here.
    Raises Fenced when the worker's lease does not live.
    """
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    segment = await fetch_one(session, _SEGMENTS["lock"], run_id=run_id, n=n)
    if run is None or segment is None or segment["state"] != "open" or run["segment"] != n:
        return None
    if run["state"] not in (RunState.QUEUED, RunState.RUNNING, RunState.CANCELLING):
        return None
    owned = await fetch_one(session, _SEGMENTS["owned_by_executor"], workflow_id=f"{run_id}:{n}", worker_id=worker_id)
    if owned is None:
        return None
    if not owned["lives"]:
        raise Fenced(f"worker {worker_id} has no live lease: it may not begin segment {n} of run {run_id}")
    if run["state"] == RunState.CANCELLING:
        await cancelling.end(session, run, outcome="cancelled")
        await number(session, run_id, cancelling.told(run), worker_id=worker_id)
        return None
    steps_seen = await _steps_recorded(session, run_id)
    went_on = steps_seen > run["steps_seen"]
    stalls = 0 if went_on else run["stalls"] + (1 if segment["executions"] else 0)
    refusal = _refusal(run, versions, stalls=stalls, stalls_max=stalls_max)
    refusal = refusal or await principals.lost_right(session, run["tenant"], run["principal"])
    if refusal is not None:
        await hold(session, run_id, n, reason=refusal)
        return None
    frozen = cast(
        "Mapping[str, Any]", segment["frozen"] or await _freeze(session, run, turns_max=turns_max[run["agent"]])
    )
    await execute(session, _SEGMENTS["freeze"], run_id=run_id, n=n, frozen=json.dumps(frozen))
    begun = await fetch_one(
        session,
        _RUNS["begin_if_queued_or_running"],
        run_id=run_id,
        segment=n,
        stalls=stalls,
        steps_seen=steps_seen,
        agent_version=versions[run["agent"]],
    )
    assert begun is not None, "the lock is held and the state was read under it"
    execution = Execution(run_id, Tenant(run["tenant"]), n, begun["generation"], worker_id)
    history = await messages.before(session, run_id, cut=frozen["cut"])
    stored = await messages.count(session, run_id) - frozen["cut"]
    await number_fenced(
        session, execution, Event("segment.began", {"segment": n, "execution": segment["executions"] + 1})
    )
    return Begun(execution, run["agent"], run["input"], run["principal"], frozen, history, stored)


async def _steps_recorded(session: AsyncSession, run_id: RunId) -> int:
    row = await fetch_one(session, _STEPS["count"], run_id=run_id)
    assert row is not None
    return int(row["recorded"])


def _refusal(run: Mapping[str, Any], versions: Mapping[str, str], *, stalls: int, stalls_max: int) -> str | None:
    if run["agent"] not in versions:
        return f"this worker does not serve agent {run['agent']}: start one that does, then release the run"
    if stalls >= stalls_max:
        return f"died {stalls} times in a row without a new step: see the worker's log, fix the cause, release the run"
    return None


async def _freeze(session: AsyncSession, run: Mapping[str, Any], *, turns_max: int) -> dict[str, JsonValue]:
    """Everything that shapes the sequence of steps, so that a replay sees what the first execution saw."""
    run_id = RunId(run["run_id"])
    answers: dict[str, JsonValue] = {}
    for wait in await _waits_to_answer(session, run):
        answers[wait["call_id"]] = {"go": wait["outcome"] == "go", "reason": wait["reason"]}
    return {
        "cut": await messages.count(session, run_id),
        "answers": answers,
        "turn_base": run["turns"],
        "usage": run["usage"],
        "turns_max": turns_max,
        "artifacts": await artifacts.run_has_any(session, run_id),
    }


async def _waits_to_answer(session: AsyncSession, run: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The waits of the segment that ended last, seen through segments that were given up before their first turn."""
    ended = await fetch_one(session, _SEGMENTS["ended_last"], run_id=run["run_id"], n=run["segment"])
    if ended is None or ended["turns"] != run["turns"]:
        return ()
    return await waits.of_segment(session, RunId(run["run_id"]), ended["n"])


async def hold(session: AsyncSession, run_id: RunId, n: int, *, reason: str) -> None:
    """Put the run aside with the reason; its segment is settled. The caller holds the run row's lock."""
    await settle(session, run_id, n, outcome="held")
    await execute(session, _RUNS["stop_if_open"], run_id=run_id, state=RunState.HELD, ended=False, reason=reason)
    await number(session, run_id, Event("run.held", {"reason": reason}))


async def end(session: AsyncSession, execution: Execution, ending: Ending) -> bool:
    """The commit that ends a segment. True when it also enqueued the next one. Raises Fenced.

    The run row is locked before anything is counted, and before it the actions that may have to be cancelled. A run
    that finishes cancels what was never sent, and is held instead while something was sent and is not settled.
    """
    run_id, n = execution.run_id, execution.segment
    unsettled, _ = await actions.lock_unsettled_with_run(session, run_id)
    run = await _run_unless_ended(session, execution)
    if run is None:
        return False
    if run["state"] == RunState.CANCELLING:
        await _cancel(session, execution, run, ending)
        return False
    ending = await _without_loose_ends(session, ending, unsettled)
    data: dict[str, JsonValue] = {"segment": n}
    if ending.reason:
        data["reason"] = ending.reason
    await number_fenced(session, execution, Event(f"run.{ending.state}", data))
    if ending.messages:
        await messages.append(session, execution, first_seq=ending.first_seq, messages=ending.messages)
    for wait in ending.waits:
        await waits.insert(
            session, run_id=run_id, segment=n, tenant=execution.tenant, wait=await _seen_now(session, run_id, wait)
        )
    await _deny_behind_denied(session, run_id, n, actions.prepared(unsettled))
    going_on = ending.state is RunState.QUEUED
    state = RunState.WAITING if going_on else ending.state
    updated = await fetch_one(
        session,
        _RUNS["end_if_running"],
        run_id=run_id,
        segment=n,
        generation=execution.generation,
        state=state,
        reason=ending.reason,
        output=storable_json(ending.output) if state is RunState.COMPLETED or ending.output is not None else None,
        usage=canonical_json(ending.usage),
        turns=ending.turns,
        ended=state.ended,
    )
    assert updated is not None, "number_fenced holds the row"
    await settle(session, run_id, n, outcome=ending.state)
    return await waits.wake(session, run_id) if state is RunState.WAITING else False


async def _without_loose_ends(session: AsyncSession, ending: Ending, unsettled: Sequence[Mapping[str, Any]]) -> Ending:
    if ending.state not in (RunState.COMPLETED, RunState.FAILED):
        return ending
    never_sent = [ActionId(row["action_id"]) for row in actions.prepared(unsettled)]
    cancelled = await actions.cancel(session, never_sent, reason=f"the run {ending.state} before it was sent")
    sent = [row["action_id"] for row in unsettled if row["action_id"] not in cancelled]
    if not sent:
        return ending
    return replace(ending, state=RunState.HELD, reason=f"{sent[0]} was sent and its outcome is not known yet")


async def _cancel(session: AsyncSession, execution: Execution, run: Mapping[str, Any], ending: Ending) -> None:
    """The end of a segment whose run is being cancelled, whatever it came to."""
    if ending.messages:
        await messages.append(session, execution, first_seq=ending.first_seq, messages=ending.messages)
    # Numbered before the state changes, which fences: an execution that is stale ends nothing.
    await number_done(session, execution, cancelling.told(run))
    usage = canonical_json(ending.usage)
    await cancelling.end(session, run, outcome="cancelled", turns=ending.turns, usage=usage)


async def _run_unless_ended(session: AsyncSession, execution: Execution) -> Mapping[str, Any] | None:
    """The run, locked. None: this very execution has committed its end, and only the answer to the commit was lost."""
    run = await fetch_one(session, _RUNS["lock"], run_id=execution.run_id)
    segment = await fetch_one(session, _SEGMENTS["lock"], run_id=execution.run_id, n=execution.segment)
    assert run is not None
    assert segment is not None
    return None if run["generation"] == execution.generation and segment["state"] == "settled" else run


async def record_turn(
    session: AsyncSession, execution: Execution, *, turns: int, usage: JsonValue, phase: str | None = None
) -> Sequence[Event]:
    """Count the turn and its usage, so that a run that stops anywhere has counted them. What to number next.

    phase: what people see from now on; None: as before.
    """
    row = await fetch_one(
        session,
        _RUNS["record_turn_of_generation"],
        run_id=execution.run_id,
        generation=execution.generation,
        turns=turns,
        usage=canonical_json(usage),
        phase=phase,
    )
    events = [Event("turn.recorded", {"turn": turns})]
    if row is not None and row["phase_changed"]:
        events.append(Event("run.phase", {"phase": phase}))
    return events


async def _seen_now(session: AsyncSession, run_id: RunId, wait: Wait) -> Wait:
    """The wait as it is at this commit: what was settled, changed or asked for while the segment ended."""
    if wait.action_id is None or wait.kind == "follows":
        return wait
    action = await revisions.meant(session, wait.action_id)
    wait = replace(wait, action_id=ActionId(action["action_id"]), call=wait.call or wait.action_id)
    if action["settled_at"] is not None and (wait.kind != "approval" or action["state"] != ActionState.CANCELLED):
        return replace(wait, outcome="go")
    if action["run_id"] != run_id:  # shared by its key: its approval is its owner's to wait for
        return wait
    approval = await approvals.last(session, action["action_id"])
    state = None if approval is None else approval["state"]
    if wait.kind == "approval":
        assert state is not None, "a gated call asks for its approval before it defers"
        if state == ApprovalState.APPROVED:
            return replace(wait, outcome="go")
        if state != ApprovalState.PENDING:
            reason = action["reason"] or f"the approval is {state}"  # in the words of whoever refused it
            return replace(wait, outcome="denied", reason=reason)
    elif action["state"] != ActionState.PREPARED:
        return wait
    elif state == ApprovalState.PENDING:  # asked for anew by who was to send it
        return replace(wait, kind="approval")
    elif state == ApprovalState.APPROVED and await outbox.is_parked(session, action["action_id"]):
        return replace(wait, outcome="go")  # and decided: it is sent by the segment that comes
    return wait


async def _deny_behind_denied(
    session: AsyncSession, run_id: RunId, n: int, prepared: Sequence[Mapping[str, Any]]
) -> None:
    """A call may have been refused before those behind it were prepared: they end with it here."""
    found = await waits.of_segment(session, run_id, n)
    denied = next((wait for wait in found if wait["outcome"] == "denied"), None)
    if denied is None:
        return
    reason = f"the call before it was refused: {denied['reason']}"
    await waits.deny_after(session, run_id, segment=n, position=denied["position"], reason=reason)
    still = {row["action_id"] for row in prepared}
    behind = [w["action_id"] for w in found if w["position"] > denied["position"] and w["action_id"] in still]
    await actions.cancel(session, behind, reason=reason)


async def settle(session: AsyncSession, run_id: RunId, n: int, *, outcome: str) -> None:
    """Mark the segment settled; a settled one stays as it is."""
    await execute(session, _SEGMENTS["settle"], run_id=run_id, n=n, outcome=outcome)


async def lost(session: AsyncSession, *, version: str, limit: int) -> Sequence[Mapping[str, Any]]:
    """Current segments that the engine will never execute again: terminal, gone, or of a version nobody runs."""
    return await fetch_all(session, _SEGMENTS["lost"], version=version, run_id=None, limit=limit)


async def restart_lost(
    session: AsyncSession, *, run_id: RunId, n: int, version: str, why: str, stalls_max: int
) -> bool:
    """Give up a lost segment and go on in the next one from the run's own record. True when it was still lost.

    A run that was being cancelled is cancelled instead.

    Asked again under the run row's lock, which a worker needs to begin: one may have taken it up since the look.
    """
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None or run["segment"] != n or run["state"] not in (
        RunState.QUEUED, RunState.RUNNING, RunState.CANCELLING
    ):  # fmt: skip
        return False
    if not await fetch_all(session, _SEGMENTS["lost"], version=version, run_id=run_id, limit=1):
        return False
    if run["state"] == RunState.CANCELLING:
        await cancelling.end(session, run, outcome="lost")
        await number(session, run_id, cancelling.told(run))
        return True
    stalls = run["stalls"] + 1
    if stalls >= stalls_max:
        await hold(
            session, run_id, n, reason=f"the engine lost its segment {stalls} times in a row ({why}): see the log"
        )
        return True
    await settle(session, run_id, n, outcome="lost")
    raised = await fetch_one(session, _RUNS["raise_segment_after_loss"], run_id=run_id, segment=n, stalls=stalls)
    assert raised is not None, "the lock is held and the state was read under it"
    await number(session, run_id, Event("segment.lost", {"segment": n, "why": why}))
    await waits.enqueue_next(session, run_id, n=raised["segment"], tenant=raised["tenant"])
    return True
