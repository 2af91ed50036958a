"""A person's decision, bound to one action and to exactly what it will do."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, principals, waits
from transactions.canonical import canonical_json, request_hash
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, Forbidden, InvalidInput, NotFound
from transactions.events import Event, Execution, number
from transactions.ids import ActionId, ApprovalId, RunId, Tenant
from transactions.principals import Principal, Role
from transactions.statements import load
from transactions.states import ApprovalState, RunState

_APPROVALS = load("approvals")
_RUNS = load("runs")
_REASON_CHARACTERS_MAX = 4000
_NAME_CHARACTERS_MAX = 200

Decision = Literal["approve", "reject"]


def binding_hash(tool: str, arguments: JsonValue, binding: JsonValue) -> str:
    """What a decision is bound to: the tool, its arguments and the references it resolves to."""
    return request_hash({"tool": tool, "arguments": arguments, "binding": binding})


async def request(
    session: AsyncSession,
    execution: Execution,
    ask: actions.Request,
    *,
    binding: JsonValue,
    approver: str,
    expires: timedelta,
) -> ApprovalState:
    """Ask for the approval of an action, once. Its state now."""
    await execute(
        session,
        _APPROVALS["request_if_new"],
        approval_id=ask.action_id,
        tenant=execution.tenant,
        run_id=execution.run_id,
        action_id=ask.action_id,
        tool=ask.tool,
        arguments=canonical_json(ask.arguments),
        binding=canonical_json(binding),
        binding_hash=binding_hash(ask.tool, ask.arguments, binding),
        approver=approver,
        expires_s=expires.total_seconds(),
    )
    row = await fetch_one(session, _APPROVALS["of_action"], action_id=ask.action_id)
    assert row is not None
    return ApprovalState(row["state"])


async def objection(
    session: AsyncSession, action_id: ActionId, *, tool: str, arguments: JsonValue, binding: JsonValue
) -> str | None:
    """Why the action may not be done now, or None. Locks the approval until the caller's commit."""
    row = await fetch_one(session, _APPROVALS["of_action_for_update"], action_id=action_id)
    if row is None:
        return "it needs an approval and has none"
    if row["state"] != ApprovalState.APPROVED:
        return f"its approval is {row['state']}"
    if row["is_over"]:
        return "its approval has expired: ask again"
    if row["authenticated"] and not await _may_still(session, row):
        return f"{row['decided_by']}, who approved it, may not any more: ask again"
    if row["binding_hash"] != binding_hash(tool, arguments, binding):
        bound, now = canonical_json(row["binding"]), canonical_json(binding)
        return f"the approval is bound to {bound}, and it would now be {now}: ask again"
    return None


async def _may_still(session: AsyncSession, approval: Mapping[str, Any]) -> bool:
    """Whether who approved it could do so now: neither disabled nor without the role that counted."""
    try:
        now = await principals.get(session, approval["tenant"], approval["decided_by"])
    except (NotFound, Forbidden):
        return False
    return now.may(Role.APPROVER) and approval["decided_role"] in (None, *now.roles)


async def binding(session: AsyncSession, action_id: ActionId) -> Mapping[str, JsonValue]:
    """What the approval of an action is bound to."""
    row = await fetch_one(session, _APPROVALS["of_action"], action_id=action_id)
    assert row is not None, "a gated action asks for its approval in the commit that prepares it"
    return row["binding"]


async def pending(session: AsyncSession, tenant: Tenant, *, limit: int) -> Sequence[Mapping[str, Any]]:
    """Approvals that wait for a decision, oldest first, at most `limit`."""
    return await fetch_all(session, _APPROVALS["pending"], tenant=tenant, limit=limit)


async def decide(
    session: AsyncSession,
    approval_id: ApprovalId,
    *,
    who: Principal,
    decision: Decision,
    reason: str | None,
) -> RunId:
    """One decision counts. It settles the wait and wakes the run in the same commit.

    Raises NotFound, Forbidden (wrong role or person), Conflict (decided, expired, or the run is over), InvalidInput.
    """
    check_words(who.name, reason)
    approval = await fetch_one(session, _APPROVALS["get"], approval_id=approval_id)
    if approval is None:
        raise NotFound(f"No approval {approval_id}: see `surefoot approvals list`.")
    run_id = RunId(approval["run_id"])
    prepared, run = await actions.lock_with_run(session, run_id)
    assert run is not None
    role = await _right(session, approval, who)
    state = ApprovalState.APPROVED if decision == "approve" else ApprovalState.REJECTED
    if RunState(run["state"]).takes_nothing_new:
        raise Conflict(f"Run {run_id} is {run['state']}: there is nothing left to decide.")
    decided = await fetch_one(
        session,
        _APPROVALS["decide_if_pending"],
        approval_id=approval_id,
        state=state,
        decided_by=who.name,
        decided_role=role,
        authenticated=who.authenticated,
        reason=reason,
    )
    if decided is None:
        raise Conflict(await _why_not(session, approval_id))
    data: dict[str, JsonValue] = {
        "approval": approval_id,
        "by": who.name,
        "role": role,
        "authenticated": who.authenticated,
    }
    await number(session, run_id, Event(f"approval.{state}", data))
    why = None if state is ApprovalState.APPROVED else f"{who.name} refused it" + (f": {reason}" if reason else "")
    await _apply(session, run_id, decided["action_id"], prepared, refused=why)
    return run_id


def check_words(by: str, reason: str | None) -> None:
    """What a person says of a decision, within limits. Raises InvalidInput."""
    if not 1 <= len(by.strip()) <= _NAME_CHARACTERS_MAX or len(by) > _NAME_CHARACTERS_MAX:
        raise InvalidInput(f"Say who decides, in 1 to {_NAME_CHARACTERS_MAX} characters.")
    if reason is not None and len(reason) > _REASON_CHARACTERS_MAX:
        raise InvalidInput(
            f"The reason has {len(reason)} characters; the limit is {_REASON_CHARACTERS_MAX}: shorten it."
        )
    if "\x00" in by or (reason and "\x00" in reason):
        raise InvalidInput("A name or reason contains a NUL character, which Postgres cannot store: remove it.")


async def _right(session: AsyncSession, approval: Mapping[str, Any], who: Principal) -> str | None:
    """In which role they decide, as the database has it now; None: by name. Raises Forbidden, NotFound."""
    kind, _, name = str(approval["approver"]).partition(":")
    if not who.authenticated:
        if not await principals.is_open(session):
            raise Forbidden("A decision needs to know whose it is: give your token, or in an application `acting_as`.")
        return name if kind == "role" else None
    now = await principals.get(session, who.tenant, who.name)
    now.need(Role.APPROVER)
    held = now.roles & who.roles  # of those it has now, what its token may
    if name not in held if kind == "role" else name != now.name:
        raise Forbidden(
            f"{approval['tool']} needs the approval of {kind} {name!r}, and {now.name} has the roles "
            f"{', '.join(sorted(held))}."
        )
    return name if kind == "role" else None


async def _why_not(session: AsyncSession, approval_id: ApprovalId) -> str:
    row = await fetch_one(session, _APPROVALS["get"], approval_id=approval_id)
    assert row is not None
    if row["state"] == ApprovalState.PENDING:
        return (
            f"Approval {approval_id} expired at {row['expires_at']:%Y-%m-%d %H:%M:%S %Z}: the agent has to ask again."
        )
    by = f" by {row['decided_by']}" if row["decided_by"] else ""
    return f"Approval {approval_id} is already {row['state']}{by}: one decision counts."


async def _apply(
    session: AsyncSession,
    run_id: RunId,
    action_id: ActionId,
    prepared: Sequence[Mapping[str, Any]],
    *,
    refused: str | None,
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
    await _apply(session, run_id, expired["action_id"], prepared, refused="nobody decided before it expired")
    return True
