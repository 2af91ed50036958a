"""What a run waits for, and waking it. Who settles a wait locks the run row first, then counts in a new statement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.ids import ActionId, RunId, Tenant
from transactions.statements import load

_WAITS = load("waits")
_RUNS = load("runs")
_SEGMENTS = load("segments")

WaitKind = Literal["approval", "follows", "delivery", "verification"]
Outcome = Literal["go", "denied"]


@dataclass(frozen=True, slots=True)
class Wait:
    """One call the ended segment left open, or one that stands behind such a call (already settled).

    `action_id`: what it waits for; none when it stands behind and is not prepared yet. `call`: the call's own id, where
    the action goes by a business key; else it is the action's.
    """

    kind: WaitKind
    action_id: ActionId | None
    call_id: str
    position: int
    outcome: Outcome | None
    reason: str | None = None
    call: str | None = None


async def insert(session: AsyncSession, *, run_id: RunId, segment: int, tenant: Tenant, wait: Wait) -> None:
    await execute(
        session,
        _WAITS["open_of_segment"],
        wait_id=wait.call or wait.action_id,
        run_id=run_id,
        segment=segment,
        tenant=tenant,
        kind=wait.kind,
        action_id=wait.action_id,
        call_id=wait.call_id,
        position=wait.position,
        state="open" if wait.outcome is None else "settled",
        outcome=wait.outcome,
        reason=wait.reason,
    )


async def of_segment(session: AsyncSession, run_id: RunId, segment: int) -> Sequence[Mapping[str, Any]]:
    """The waits a segment ended with, in the order the model asked."""
    return await fetch_all(session, _WAITS["of_segment"], run_id=run_id, segment=segment)


async def settle(
    session: AsyncSession,
    run_id: RunId,
    action_id: ActionId,
    *,
    kinds: Sequence[WaitKind],
    outcome: Outcome,
    reason: str | None,
) -> None:
    """Settle the open wait of an action, if there is one. The caller holds the run row's lock."""
    await execute(
        session,
        _WAITS["settle_of_action"],
        run_id=run_id,
        action_id=action_id,
        kinds=list(kinds),
        outcome=outcome,
        reason=reason,
    )


async def move(session: AsyncSession, run_id: RunId, action_id: ActionId, *, to: ActionId) -> None:
    """The wait of an action is for another one from now on. The caller holds the run row's lock."""
    await execute(session, _WAITS["move"], run_id=run_id, action_id=action_id, to=to)


async def ask(session: AsyncSession, run_id: RunId, action_id: ActionId) -> None:
    """What waits for an action's delivery waits for its approval now. The caller holds the run row's lock."""
    await execute(session, _WAITS["ask_of_action"], run_id=run_id, action_id=action_id)


async def deny_after(session: AsyncSession, run_id: RunId, *, segment: int, position: int, reason: str) -> None:
    """Deny every later call of the same response. The caller holds the run row's lock."""
    await execute(session, _WAITS["deny_after"], run_id=run_id, segment=segment, position=position, reason=reason)


async def deny_open(session: AsyncSession, run_id: RunId, *, reason: str) -> None:
    await execute(session, _WAITS["deny_open"], run_id=run_id, reason=reason)


async def wake(session: AsyncSession, run_id: RunId) -> bool:
    """Enqueue the next segment if the run waits and no wait is open. True when this call woke it.

    Takes the run row's lock before it counts, in statements of their own: of two who settle the last two waits at the
    same moment, the second one sees the first one's.
    """
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None or run["state"] != "waiting":
        return False
    if await count_open(session, run_id, run["segment"]):
        return False
    raised = await fetch_one(session, _RUNS["raise_segment_if_waiting"], run_id=run_id, segment=run["segment"])
    assert raised is not None, "the lock is held and the state was read under it"
    await enqueue_next(session, run_id, n=raised["segment"], tenant=raised["tenant"])
    return True


async def count_open(session: AsyncSession, run_id: RunId, segment: int) -> int:
    """How many of the waits that a segment ended with are open. The caller holds the run row's lock."""
    counted = await fetch_one(session, _WAITS["count_open"], run_id=run_id, segment=segment)
    assert counted is not None
    return int(counted["open"])


async def enqueue_next(session: AsyncSession, run_id: RunId, *, n: int, tenant: Tenant) -> None:
    """Queue segment `n` in this commit: the engine has it at once where no limit holds and there is room."""
    await execute(session, _SEGMENTS["open_next"], run_id=run_id, n=n, tenant=tenant)
