"""Negative controls: each breaks one protection inside a forked worker before it starts. The kit must then find it.

There is no switch in the product: a control replaces a part of the imported product, in that one process.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from app.crashtest.faults import Catalogue, Fault, Faults
from app.crashtest.judge import Kind
from steps import Absent
from steps.calls import Call
from steps.effects import Effects
from steps.toolset import DurableToolset
from transactions import ActionId, EntryId, Tx, receipts, segments

# Long enough for the driver, who looks every few hundredths of a second, to decide meanwhile.
_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Control:
    """What is taken away, by `broken` (`module:function`). One of the cases of `faults` must end with `finding`."""

    name: str
    broken: str
    faults: Callable[[Catalogue], Sequence[Faults]]
    finding: Kind


def no_verification() -> None:
    """What was sent and not answered is taken to be absent, without asking."""

    async def absent(*_: object) -> Absent:
        return Absent("control: nobody asked")

    _replace(Effects, "_verdict", absent)


def random_action_ids() -> None:
    """An action's id holds a random part of the process, so a recovery does not find what was done."""
    salt = uuid4().hex[:8]
    original = _part(DurableToolset, "_request")

    def request(self: Any, spec: Any, call_id: str) -> Any:
        made = original(self, spec, call_id)
        run_id, _, rest = made.action_id.partition("/")
        return replace(made, action_id=ActionId(f"{run_id}/{salt}/{rest}"))

    _replace(DurableToolset, "_request", request)


def receipts_apart() -> None:
    """A transaction's receipt is a commit of its own, after that of the rows it is for."""
    late: list[tuple[Any, Any, Any]] = []
    complete, transaction = receipts.complete_transaction, Call.transaction

    async def later(_: object, execution: Any, action_id: Any, *, result: Any) -> None:
        late.append((execution, action_id, result))

    async def apart(self: Call) -> Any:
        done = await transaction(self)
        while late:
            execution, action_id, result = late.pop()
            async with self.seat.bench.database.transaction("tool.receipt", execution.tenant) as session:
                await complete(session, execution, action_id, result=result)
        return done

    _replace(receipts, "complete_transaction", later)
    _replace(Call, "transaction", apart)


def outbox_apart() -> None:
    """An outbox entry is a commit of its own, after that of the transaction that asked for it."""
    late: list[tuple[Tx[Any], str, object, str | None]] = []
    outbox, transaction = Tx[Any].outbox, Call.transaction

    async def later(self: Tx[Any], topic: str, payload: object, *, key: str | None = None) -> EntryId:
        late.append((self, topic, payload, key))
        return EntryId(f"{self.action_id}#{topic}:0")

    async def apart(self: Call) -> Any:
        done = await transaction(self)
        while late:
            tx, topic, payload, key = late.pop()
            async with self.seat.bench.database.transaction("tool.outbox", tx.run.tenant) as session:
                await outbox(replace(tx, session=session), topic, payload, key=key)
        return done

    _replace(Tx, "outbox", later)
    _replace(Call, "transaction", apart)


def waits_before_lock() -> None:
    """The end of a segment counts the waits as its calls saw them when they deferred, before the run was locked."""
    end = segments.end

    async def late(session: Any, execution: Any, ending: Any) -> bool:
        if ending.waits:
            await asyncio.sleep(_WINDOW_S)
        return await end(session, execution, ending)

    async def as_seen(_: object, wait: Any) -> Any:
        return wait

    _replace(segments, "end", late)
    _replace(segments, "_seen_now", as_seen)


def _part(owner: object, name: str) -> Any:
    return getattr(owner, name)


def _replace(owner: object, name: str, by: object) -> None:
    setattr(owner, name, by)


def _killed_at(point: str) -> Callable[[Catalogue], Sequence[Faults]]:
    """Each of its passages, the last one first."""

    def faults(catalogue: Catalogue) -> Sequence[Faults]:
        return [(Fault("kill", point, n),) for n in range(catalogue.counts().get(point, 0), 0, -1)]

    return faults


def _nothing(_: Catalogue) -> Sequence[Faults]:
    return [()]


_SENT = "effect.after_send"
_COMMITTED = "tool.transaction.after_commit"
CONTROLS = (
    Control("no verification before a second send", f"{__name__}:no_verification", _killed_at(_SENT), "double"),
    Control("random action ids", f"{__name__}:random_action_ids", _killed_at(_SENT), "double"),
    Control("receipts not recorded with the write", f"{__name__}:receipts_apart", _killed_at(_COMMITTED), "double"),
    Control("outbox written after the commit", f"{__name__}:outbox_apart", _killed_at(_COMMITTED), "lost"),
    Control("waits counted before the lock", f"{__name__}:waits_before_lock", _nothing, "stuck"),
)
