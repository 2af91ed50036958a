"""Undoing what a run did: each effect by an action of its own, when a person asks for it and the run is over.

The undo actions of a run are delivered one after the other, what was done last first. One that fails does not hold the
others back; it can be asked for again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import outbox
from transactions.actions import EffectLimits, Safety
from transactions.canonical import canonical_json, request_hash
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, NotFound
from transactions.events import Event, number
from transactions.ids import ActionId, RunId, Tenant
from transactions.statements import load
from transactions.states import ActionState, RunState
from transactions.words import check_words

_UNDO = load("undo")
_RUNS = load("runs")

Standing = Literal["can_be_undone", "under_way", "undone", "undo_failed", "unknown", "no_undo", "shared"]
_NEXT: Mapping[Standing, str] = MappingProxyType(
    {
        "can_be_undone": "ask for it to be undone: `surefoot runs undo`",
        "under_way": "nothing: it is being undone; if it stays so, see `surefoot actions list`",
        "undone": "nothing",
        "undo_failed": "put the cause right and ask again: `surefoot runs undo`",
        "unknown": "nobody knows yet whether it happened: first settle it on the desk, `surefoot actions list`",
        "no_undo": "its tool names no undo: look there yourself",
        "shared": "another run shares it and relies on it: cancel that one first, and it can be undone",
    }
)


@dataclass(frozen=True, slots=True)
class Way:
    """How the effects of a tool are undone: the undo's tool and the name of its parameter, and its limits."""

    tool: str
    parameter: str
    safety: Safety
    limits: EffectLimits


@dataclass(frozen=True, slots=True)
class Done:
    """One effect of a run, and how it stands with undoing it. `next`: what to do, in words.

    `undo_id`, `why`: the last action that undoes it, and its reason. `undos`: how many there were.
    """

    action_id: ActionId
    tool: str
    request: JsonValue
    result: JsonValue
    standing: Standing
    undo_id: ActionId | None
    why: str | None
    undos: int
    next: str


async def look(session: AsyncSession, run_id: RunId, ways: Mapping[str, Way]) -> Sequence[Done]:
    """The effects of a run, what was done last first. `ways`: by tool. Raises NotFound."""
    if await fetch_one(session, _RUNS["identity"], run_id=run_id) is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    rows = await fetch_all(session, _UNDO["effects_of_run"], run_id=run_id)
    return [_done(row, ways) for row in rows]


def _done(row: Mapping[str, Any], ways: Mapping[str, Way]) -> Done:
    standing = _standing(row, ways)
    return Done(
        action_id=ActionId(row["action_id"]),
        tool=row["tool"],
        request=row["request"],
        result=row["result"],
        standing=standing,
        undo_id=row["undo_id"],
        why=row["undo_reason"],
        undos=row["undos"],
        next=_NEXT[standing] + (f" (run {row['relied_on_by']})" if standing == "shared" else ""),
    )


def _standing(row: Mapping[str, Any], ways: Mapping[str, Way]) -> Standing:
    if row["state"] != ActionState.SUCCEEDED:
        return "unknown"
    match row["undo_state"]:
        case None:
            if row["tool"] not in ways:
                return "no_undo"
            return "can_be_undone" if row["relied_on_by"] is None else "shared"
        case ActionState.SUCCEEDED:
            return "undone"
        case ActionState.FAILED | ActionState.CANCELLED:
            return "undo_failed"
        case _:
            return "under_way"


async def request(
    session: AsyncSession, run_id: RunId, ways: Mapping[str, Way], *, by: str, authenticated: bool, reason: str
) -> Sequence[Done]:
    """Have undone what the run did and can be undone. How everything stands then; what is under way stays so.

    Raises NotFound, Conflict (the run is not over, or there is nothing that could be undone), InvalidInput.
    """
    check_words(by, reason)
    # The run's lock first: two who ask come one after the other. The actions it inserts are nobody else's yet.
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    if not RunState(run["state"]).ended:
        raise Conflict(f"Run {run_id} is {run['state']} and may still do more: cancel it first, or wait for its end.")
    found = await look(session, run_id, ways)
    if not any(done.undo_id or done.standing == "can_be_undone" for done in found):
        raise Conflict(f"Run {run_id} did nothing that can be undone{_unknown(found)}.")
    asked = [done for done in found if done.tool in ways and done.standing in ("can_be_undone", "undo_failed")]
    if not asked:
        return found
    undo_ids = [await _prepare(session, Tenant(run["tenant"]), run_id, done, ways[done.tool]) for done in asked]
    data: dict[str, JsonValue] = {"by": by, "reason": reason, "authenticated": authenticated, "actions": [*undo_ids]}
    await number(session, run_id, Event("run.undo_requested", data))
    return await look(session, run_id, ways)


async def _prepare(session: AsyncSession, tenant: Tenant, run_id: RunId, done: Done, way: Way) -> ActionId:
    """One more undo action, and its entry behind those of the same run."""
    undo_id = ActionId(f"{done.action_id}!undo" + (f"~{done.undos + 1}" if done.undos else ""))
    arguments: JsonValue = {way.parameter: done.result}
    await execute(
        session,
        _UNDO["insert_undo"],
        undo_id=undo_id,
        action_id=done.action_id,
        tool=way.tool,
        safety=way.safety,
        request=canonical_json(arguments),
        request_hash=request_hash(arguments),
        **asdict(way.limits),
    )
    await outbox.put_effect(session, undo_id, tenant=tenant, run_id=run_id, key=f"undo:{run_id}")
    return undo_id


def _unknown(found: Sequence[Done]) -> str:
    unknown = [done.action_id for done in found if done.standing == "unknown"]
    return f"; {unknown[0]} is not settled: settle it on the desk first (`surefoot actions list`)" if unknown else ""
