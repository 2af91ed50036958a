"""Business keys: of all calls that ask for the same thing, in any run, one owns the action and the others share it.

Which action a call means is recorded in the commit that prepares it, and stays so at every replay and resumption. Only
the owner's run acts on it; a run that shares it waits, and is woken by a transaction of its own.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, waits
from transactions.actions import Request
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, InvalidInput
from transactions.events import Execution
from transactions.ids import ActionId, RunId, Tenant
from transactions.statements import load
from transactions.states import ActionState

_KEYS = load("keys")
_RUNS = load("runs")
KEY_CHARACTERS_MAX = 200
# What has a meaning of its own behind a key in an id: `~2` a revision, `#mail:0` an entry, `!undo` an undo.
_ESCAPED = MappingProxyType({ord(char): f"%{ord(char):02X}" for char in "%#~!"})
_TENANT_ESCAPED = MappingProxyType({**_ESCAPED, ord("/"): "%2F"})
_NOTHING_HAPPENED = (ActionState.FAILED, ActionState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Meant:
    """The action that a call means, locked. `owned`: it is the call's own; `new`: this commit says so first."""

    row: Mapping[str, Any]
    owned: bool
    new: bool


def action_id(tenant: Tenant, tool: str, key: str, revision: int = 1) -> ActionId:
    """`{tenant}/{tool}:{key}`, from the second revision on with `~{revision}`."""
    first = f"{tenant.translate(_TENANT_ESCAPED)}/{tool}:{key.translate(_ESCAPED)}"
    return ActionId(first if revision == 1 else f"{first}~{revision}")


def check(tool: str, key: str) -> str:
    """The key, if it can be one. Raises InvalidInput."""
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidInput(
            f"The business key of {tool} has {len(key)} characters, and it must have 1 to {KEY_CHARACTERS_MAX}: "
            "nothing was done. Call it with arguments that give such a key."
        )
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in key):
        raise InvalidInput(
            f"The business key of {tool} is {key!r}, which has a control character: nothing was done. "
            "Call it with arguments without one."
        )
    return key


async def prepare(session: AsyncSession, execution: Execution, request: Request, *, key: Callable[[], str]) -> Meant:
    """What `actions.prepare` does, for a call whose action goes by its key; `request.action_id` is the call's own id.

    A key whose last action came to nothing, or was undone, is free: the call makes the next revision. So does a call
    that shared an action which its owner cancelled. Raises RequestChanged (the key came with another request),
    Conflict (it is just being undone), InvalidInput (the key).
    """
    said = await fetch_one(session, _KEYS["of_call"], call=request.action_id)
    if said is not None:
        row = await actions.prepare(session, execution, replace(request, action_id=ActionId(said["action_id"])))
        owned = _owns(execution, request, row)
        if owned or row["state"] != ActionState.CANCELLED:
            return Meant(row, owned, new=False)
        name, revision = said["key"], said["revision"] + 1
    else:
        name = check(request.tool, key())
        last = await fetch_one(
            session, _KEYS["last_revision_of_key"], tenant=execution.tenant, tool=request.tool, key=name
        )
        revision = 1 if last is None else last["revision"]
    while True:
        asked = replace(request, action_id=action_id(execution.tenant, request.tool, name, revision))
        # Of two who insert the same one at the same moment, the second waits here for the first one's commit.
        row = await actions.insert_and_lock(session, execution, asked)
        owned = _owns(execution, request, row)
        if owned or not await _is_free(session, execution, request, row):
            break
        revision += 1
    row = await actions.as_requested(session, row, asked, then="Ask for what it was first asked for, or for another")
    await execute(
        session,
        _KEYS["say"],
        call=request.action_id,
        revision=revision,
        tenant=execution.tenant,
        run_id=execution.run_id,
        segment=execution.segment,
        tool=request.tool,
        key=name,
        action_id=asked.action_id,
        open=not owned and not ActionState(row["state"]).settled,
    )
    return Meant(row, owned, new=True)


def _owns(execution: Execution, request: Request, row: Mapping[str, Any]) -> bool:
    call = (execution.run_id, request.turn, request.position)
    return (row["run_id"], row["turn"], row["position"]) == call


async def _is_free(session: AsyncSession, execution: Execution, request: Request, row: Mapping[str, Any]) -> bool:
    """Whether the key may have another action after this one, which is locked and not the call's own."""
    if row["state"] in _NOTHING_HAPPENED:  # as far as it is known: a late receipt says otherwise
        return (await actions.get(session, ActionId(row["action_id"])))["receipt_source"] is None
    if row["state"] == ActionState.PREPARED and row["run_id"] == execution.run_id and row["turn"] < request.turn:
        # Its call was answered without it, to be corrected by the model: nobody will ever do it.
        # What may have been done in what a restore has lost is not cancelled, and the call shares what it comes to.
        return bool(await actions.cancel(session, [ActionId(row["action_id"])], reason="the model asked for it anew"))
    if row["state"] != ActionState.SUCCEEDED:
        return False
    undo = await fetch_one(session, _KEYS["last_undo_of_action"], run_id=row["run_id"], action_id=row["action_id"])
    if undo is None or undo["state"] in _NOTHING_HAPPENED:
        return False
    if undo["state"] == ActionState.SUCCEEDED:
        return True
    raise Conflict(
        f"Action {row['action_id']} is just being undone ({undo['action_id']} is {undo['state']}): nothing was done. "
        "Ask again when that has settled."
    )


async def sharers_of_settled(session: AsyncSession, *, limit: int) -> Sequence[Mapping[str, Any]]:
    """Calls that share an action which has settled, and whose runs nobody has told yet."""
    return await fetch_all(session, _KEYS["sharers_of_settled"], limit=limit)


async def wake_sharer(session: AsyncSession, sharer: Mapping[str, Any]) -> bool:
    """Settle what the run of a row of `sharers_of_settled` waits for. True when that woke it.

    A transaction of its own, after the one that settled the action: that one holds the lock of the owner's run. Under
    this run's lock, its segment has either ended, and its wait is open here, or will see the settled action at its end.
    """
    run_id = RunId(sharer["run_id"])
    await fetch_one(session, _RUNS["lock"], run_id=run_id)
    await execute(session, _KEYS["close"], call=sharer["call"], revision=sharer["revision"])
    await waits.settle(
        session,
        run_id,
        ActionId(sharer["action_id"]),
        kinds=("delivery", "verification"),
        outcome="go",
        reason=None,
    )
    return await waits.wake(session, run_id)
