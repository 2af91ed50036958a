"""What people say of an approval. One compare-and-set decides; what follows from it is of the same commit.

Lock order: the run's unsettled actions, the run, the approval, its waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, approvals, principals, revisions, waits
from transactions.approvals import Question
from transactions.canonical import canonical_json
from transactions.database import fetch_all, fetch_one
from transactions.errors import Conflict, Forbidden, InvalidInput, NotFound
from transactions.events import Event, number
from transactions.ids import ActionId, ApprovalId, RunId, Tenant
from transactions.principals import Principal, Role
from transactions.statements import load
from transactions.states import ApprovalState, RunState
from transactions.words import check_words

_APPROVALS = load("approvals")
_RUNS = load("runs")

REJECTED_WITH_CHANGES = "A rejection changes nothing: approve with the changes, or reject without them."
Decision = Literal["approve", "reject"]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """Who says what, and why. changed: what to do instead, which this approves; it is asked of others anew."""

    who: Principal
    decision: Decision
    reason: str | None = None
    changed: Question | None = None


async def decide(session: AsyncSession, approval_id: ApprovalId, said: Said) -> RunId:
    """One decision counts. It settles the wait and wakes the run in the same commit, once enough people have agreed.

    What is approved can still be approved with changes, until it is claimed: that supersedes the decision.
    Raises NotFound, Forbidden (wrong role or person), Conflict (decided, superseded, expired, or the run is over),
    InvalidInput.
    """
    check_words(said.who.name, said.reason)
    if said.changed is not None and said.decision == "reject":
        raise InvalidInput(REJECTED_WITH_CHANGES)
    seen = await fetch_one(session, _APPROVALS["get"], approval_id=approval_id)
    if seen is None:
        raise NotFound(f"No approval {approval_id}: see `surefoot approvals list`.")
    run_id = RunId(seen["run_id"])
    prepared, run = await actions.lock_with_run(session, run_id)
    assert run is not None
    approval = await fetch_one(session, _APPROVALS["lock"], approval_id=approval_id)
    assert approval is not None
    right = await _right(session, approval, said.who)
    if RunState(run["state"]).takes_nothing_new:
        raise Conflict(f"Run {run_id} is {run['state']}: there is nothing left to decide.")
    stands = (ApprovalState.PENDING,) if said.changed is None else (ApprovalState.PENDING, ApprovalState.APPROVED)
    if approval["state"] not in stands or approval["is_over"]:
        raise Conflict(await _why_not(session, approval))
    if said.changed is not None:
        before = approval
        approval = await _change(session, approval, said, said.changed)
        # Who may decide the question by now may change it: nobody waits for the new one to be escalated again.
        others = [each for each in approval["escalates_to"] or () if each in before["may"]]
        right = await _right(session, {**approval, "may": [*approval["may"], *others]}, said.who)
        prepared = await actions.lock_prepared(session, run_id)
    enough = await _record(session, approval, said, right)
    if said.decision == "reject" or enough:
        await _settle(session, approval, said, right, prepared)
    return run_id


async def _record(session: AsyncSession, approval: Row, said: Said, right: str) -> bool:
    """Keep what they say. Whether enough people have agreed by now."""
    row = await fetch_one(
        session,
        _APPROVALS["record_decision"],
        approval_id=approval["approval_id"],
        decision=said.decision,
        decided_by=said.who.name,
        in_right_of=right,
        authenticated=said.who.authenticated,
        reason=said.reason,
    )
    if row is None and said.decision == "approve":
        raise Conflict(
            f"{said.who.name} has agreed to {approval['approval_id']} before, and {approval['people_min']} different "
            "people have to: ask another one."
        )
    agreed = 0 if row is None else int(row["n"])
    data: dict[str, JsonValue] = {"approval": approval["approval_id"], "by": said.who.name, "n": agreed}
    if said.decision == "approve" and agreed < approval["people_min"]:
        await number(session, approval["run_id"], Event("approval.agreed", data))
        return False
    return True


async def _settle(session: AsyncSession, approval: Row, said: Said, right: str, prepared: Sequence[Row]) -> None:
    """The decision itself, and all that follows from it."""
    state = ApprovalState.APPROVED if said.decision == "approve" else ApprovalState.REJECTED
    role = right.removeprefix("role:")  # or `user:NAME`, in their own right
    decided = await fetch_one(
        session,
        _APPROVALS["decide_if_pending"],
        approval_id=approval["approval_id"],
        state=state,
        decided_by=said.who.name,
        decided_role=role,
        authenticated=said.who.authenticated,
        reason=said.reason,
    )
    if decided is None:
        raise Conflict(await _why_not(session, approval))
    data: dict[str, JsonValue] = {
        "approval": approval["approval_id"],
        "by": said.who.name,
        "role": role,
        "authenticated": said.who.authenticated,
    }
    run_id, action_id = RunId(approval["run_id"]), ActionId(decided["action_id"])
    await number(session, run_id, Event(f"approval.{state}", data))
    await approvals.forget_reminders(session, action_id)
    refused = None
    if state is ApprovalState.REJECTED:
        refused = f"{said.who.name} refused it" + (f": {said.reason}" if said.reason else "")
    await _apply(session, run_id, action_id, prepared, refused=refused)


async def _change(session: AsyncSession, approval: Row, said: Said, changed: Question) -> Row:
    """Have the call mean a revision of its action, and ask for that one's approval instead. Its row, locked."""
    then, now = [approval["arguments"], approval["binding"]], [changed.arguments, changed.binding]
    if canonical_json(then) == canonical_json(now):
        raise InvalidInput("That changes nothing: approve it as it is, or say what to change.")
    revision = await revisions.revise(session, ActionId(approval["action_id"]), changed, by=said.who.name)
    await number(
        session,
        approval["run_id"],
        Event("action.revised", {"action": approval["action_id"], "revision": revision, "by": said.who.name}),
    )
    row = await fetch_one(session, _APPROVALS["lock"], approval_id=revision)
    assert row is not None, "a revision is asked for in the commit that makes it, under its own id"
    return row


async def _right(session: AsyncSession, approval: Row, who: Principal) -> str:
    """In whose right they decide, `role:NAME` or `user:NAME`, as it is now. Raises Forbidden, NotFound."""
    may: Sequence[str] = approval["may"]
    if not who.authenticated:
        if not await principals.is_open(session):
            raise Forbidden("A decision needs to know whose it is: give your token, or in an application `acting_as`.")
        right = may[0]
    else:
        who.need(Role.APPROVER)  # of the token, which may have less than its principal
        now = await principals.get(session, who.tenant, who.name)
        now.need(Role.APPROVER)
        held = now.roles & who.roles  # of those it has now, what its token may
        own = {f"user:{now.name}", *(f"role:{role}" for role in held)}
        found = next((each for each in may if each in own), None)
        if found is None:
            has = ", ".join(sorted(held))
            raise Forbidden(f"{approval['tool']} needs the approval of {' or '.join(may)}; {who.name} has: {has}.")
        right = found
    if approval["not_requester"] and approval["requester"] == who.name:
        raise Forbidden(f"{who.name} has started this run, and somebody else has to decide: ask {' or '.join(may)}.")
    return right


async def _why_not(session: AsyncSession, approval: Row) -> str:
    row = await fetch_one(session, _APPROVALS["get"], approval_id=approval["approval_id"])
    assert row is not None
    name = f"Approval {row['approval_id']}"
    if row["state"] == ApprovalState.PENDING or (row["state"] == ApprovalState.APPROVED and row["is_over"]):
        return f"{name} expired at {row['expires_at']:%Y-%m-%d %H:%M:%S %Z}: the agent has to ask again."
    if row["state"] == ApprovalState.SUPERSEDED:
        newer = await fetch_one(session, _APPROVALS["superseding"], approval_id=row["approval_id"])
        assert newer is not None, "what supersedes is asked for in the same commit"
        return f"{name} is superseded by {newer['approval_id']}, because {row['reason']}: look at that one."
    by = f" by {row['decided_by']}" if row["decided_by"] else ""
    return f"{name} is already {row['state']}{by}: one decision counts."


async def _apply(
    session: AsyncSession, run_id: RunId, action_id: ActionId, prepared: Sequence[Row], *, refused: str | None
) -> None:
    """Settle the wait; after a refusal, deny what the model asked for behind it in the same response."""
    if refused is None:
        await waits.settle(session, run_id, action_id, kinds=("approval",), outcome="go", reason=None)
    else:
        await waits.settle(session, run_id, action_id, kinds=("approval",), outcome="denied", reason=refused)
        own = next((row for row in prepared if row["action_id"] == action_id), None)
        if own is not None:
            behind = [r["action_id"] for r in prepared if r["turn"] == own["turn"] and r["position"] > own["position"]]
            await actions.cancel(session, [action_id], reason=refused)
            await actions.cancel(session, behind, reason=f"the call before it was refused: {refused}")
            run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
            assert run is not None
            await waits.deny_after(
                session,
                run_id,
                segment=run["segment"],
                position=own["position"],
                reason=f"the call before it was refused: {refused}",
            )
    await waits.wake(session, run_id)


async def overdue(session: AsyncSession, *, limit: int) -> Sequence[tuple[ApprovalId, Tenant]]:
    """Pending approvals whose time is over."""
    rows = await fetch_all(session, _APPROVALS["overdue"], limit=limit)
    return [(row["approval_id"], row["tenant"]) for row in rows]


async def expire(session: AsyncSession, approval_id: ApprovalId) -> bool:
    """Nobody decided in time: the same as a refusal, with that reason. False: somebody was quicker."""
    approval = await fetch_one(session, _APPROVALS["get"], approval_id=approval_id)
    if approval is None:
        return False
    run_id = RunId(approval["run_id"])
    prepared, _ = await actions.lock_with_run(session, run_id)
    expired = await fetch_one(session, _APPROVALS["expire_if_pending_and_over"], approval_id=approval_id)
    if expired is None:
        return False
    await number(session, run_id, Event("approval.expired", {"approval": approval_id}))
    await approvals.forget_reminders(session, ActionId(expired["action_id"]))
    await _apply(session, run_id, expired["action_id"], prepared, refused="nobody decided before it expired")
    return True
