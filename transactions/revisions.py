"""A request that a person has changed is an action of its own, `{action}~{r}`, made only while nothing was sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions import actions, approvals, epochs, outbox, waits
from transactions.approvals import Question
from transactions.canonical import request_hash
from transactions.database import execute, fetch_one
from transactions.errors import Conflict
from transactions.ids import ActionId, RunId
from transactions.statements import load
from transactions.states import ActionState
from transactions.words import checked_json

_ACTIONS = load("actions")
REQUEST_BYTES_MAX = 512 * 1024


async def revise(session: AsyncSession, action_id: ActionId, changed: Question, *, by: str) -> ActionId:
    """The action of what is done instead, with its approval pending; the call's wait is for it from now on.

    The caller holds the locks of the run's unsettled actions and of the run. Raises Conflict, InvalidInput.
    """
    row = await fetch_one(session, _ACTIONS["lock"], action_id=action_id)
    assert row is not None
    if row["state"] != ActionState.PREPARED or row["attempt"] > 0:
        raise Conflict(f"Action {action_id} is {row['state']}, attempt {row['attempt']}: it can be changed no more.")
    if row["verify_first"]:
        raise Conflict(
            f"Action {action_id} cannot be changed, for {epochs.LOST}: approve it as it is, and that is looked for "
            "first; or reject it, and say on the desk what happened."
        )
    if row["kind"] == "effect" and not await outbox.is_parked(session, action_id):
        raise Conflict(f"Action {action_id} is on its way: it can be changed no more.")
    text = checked_json("changed request", changed.arguments, bytes_max=REQUEST_BYTES_MAX)
    first, revision = _next(row)
    made = await fetch_one(
        session,
        _ACTIONS["insert_revision"],
        action_id=action_id,
        revision=f"{first}~{revision}",
        request=text,
        request_hash=request_hash(changed.arguments),
    )
    assert made is not None, "revisions of an action are made one after the other, under its lock"
    new = ActionId(made["action_id"])
    before = await approvals.last(session, action_id)
    assert before is not None, "it is an approval that a person decides with changes"
    await approvals.ask_instead(session, replace(changed, action_id=new), before=before, why=f"{by} changed it")
    await actions.cancel(session, [action_id], reason=f"{by} changed it: see {new}")
    if row["kind"] == "effect":
        await outbox.put_effect(session, new, tenant=row["tenant"], run_id=row["run_id"], parked=True)
    await execute(session, _ACTIONS["point_to_revision"], action_id=action_id, revision=new)
    await waits.move(session, RunId(row["run_id"]), action_id, to=new)
    return new


def _next(row: Mapping[str, Any]) -> tuple[str, int]:
    """The first action of the call, and the number of the revision after this one."""
    if row["revises"] is None:
        return row["action_id"], 2
    first, _, number = str(row["action_id"]).rpartition("~")
    return first, int(number) + 1


async def meant(session: AsyncSession, action_id: ActionId) -> Mapping[str, Any]:
    """The row of `actions.get` that a call means now, whose action had this id once."""
    row = await actions.get(session, action_id)
    while row["revised_to"] is not None:
        row = await actions.get(session, row["revised_to"])
    return row


async def current(session: AsyncSession, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row that a call means now, locked: that of the last revision of its action, or its action's own."""
    while row["revised_to"] is not None:
        found = await fetch_one(session, _ACTIONS["lock"], action_id=row["revised_to"])
        assert found is not None
        row = await actions.get(session, found["action_id"]) if ActionState(found["state"]).settled else found
    return row
