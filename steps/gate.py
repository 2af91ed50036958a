"""The gate before an action: its approval is asked for, and checked again in the transaction that claims it."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter

from steps.spec import Spec
from transactions import ApprovalState, Execution, Tx, actions, approvals
from transactions.actions import Ticket

_JSON: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


async def binding(tx: Tx[Any], spec: Spec, request: JsonValue) -> JsonValue:
    """What a decision on this call is bound to, as it is now: immutable references, or the arguments themselves."""
    assert spec.approval is not None
    if spec.approval.binds is None:
        return request
    bound = await spec.approval.binds(tx, **spec.parse(cast("dict[str, Any]", request)))
    return cast(JsonValue, _JSON.dump_python(dict(bound), mode="json"))


async def ask(tx: Tx[Any], execution: Execution, spec: Spec, request: actions.Request) -> ApprovalState:
    """Ask for the approval once; its state now."""
    assert spec.approval is not None
    return await approvals.request(
        tx.session,
        execution,
        request,
        binding=await binding(tx, spec, request.arguments),
        approver=spec.approval.by,
        expires=spec.approval.expires,
    )


async def unmet(tx: Tx[Any], spec: Spec, request: JsonValue) -> str | None:
    """Why the tool's precondition does not hold, or None. Before the run row is locked: it may lock what it reads."""
    if spec.requires is None:
        return None
    return await spec.requires(tx, **spec.whole(spec.parse(cast("dict[str, Any]", request))))


async def objection(tx: Tx[Any], spec: Spec, request: JsonValue) -> str | None:
    """Why the call may not be done now, or None. Locks the approval until this transaction ends."""
    if spec.approval is None:
        return None
    now = await binding(tx, spec, request)
    return await approvals.objection(tx.session, tx.action_id, tool=spec.name, arguments=request, binding=now)


class NotNow(Exception):
    """The run takes no new work, or the ticket is another's. The transaction rolls back; nothing was sent."""


class Objection(Exception):
    """The precondition or the approval does not hold (any more), and why. It rolls back; nothing was sent."""


async def check_and_claim(tx: Tx[Any], ticket: Ticket, spec: Spec, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """`claim`, after the tool's precondition was checked in the same transaction."""
    why = await unmet(tx, spec, row["request"])
    if why is not None:
        raise Objection(why)
    return await claim(tx, ticket, spec, row)


async def claim(tx: Tx[Any], ticket: Ticket, spec: Spec, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Claim the action; its approval, its binding and the rights are checked in the same transaction.

    What it requires the caller has checked before, in this transaction too, or calls `check_and_claim`.

    Raises NotNow, Objection, Fenced. Lock order: action, run, approval, as in a decision.
    """
    claimed = await actions.claim(tx.session, ticket, attempt=row["attempt"])
    if claimed is None:
        raise NotNow(f"{ticket.action_id} cannot be claimed now")
    why = await objection(tx, spec, row["request"])
    if why is not None:
        raise Objection(why)
    return claimed
