"""Negative controls: each breaks one protection inside a forked worker before it starts. The kit must then find it.

There is no switch in the product: a control replaces a part of the imported product, in that one process.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from app.crashtest.faults import Fault, Faults, parse
from app.crashtest.judge import Kind
from app.crashtest.plans import Catalogue
from steps import Absent, verifying
from steps.calls import Call
from steps.seat import Seat
from steps.toolset import DurableToolset
from transactions import ActionId, EntryId, Tx, actions, attempts, events, outbox, receipts, segments
from transactions.lease import Lease

# Long enough for the driver, who looks every few hundredths of a second, to decide meanwhile.
_WINDOW_S = 1.0
_QUESTION_S = 4.0
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Control:
    """What is taken away, by `broken` (`module:function`). One of the cases of `faults` must end with `finding`.

    besides: what else is taken away, so that it is this protection alone that is left; without `broken` all is well.
    """

    name: str
    broken: str
    faults: Callable[[Catalogue], Sequence[Faults]]
    finding: Kind
    besides: tuple[str, ...] = ()


def no_verification() -> None:
    """What was sent and not answered is taken to be absent, without asking."""

    async def absent(*_: object) -> Absent:
        return Absent("control: nobody asked")

    _replace(verifying, "_verdict", absent)


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
    late: list[tuple[Tx[Any], str, object, Mapping[str, Any]]] = []
    outbox, transaction = Tx[Any].outbox, Call.transaction

    async def later(self: Tx[Any], topic: str, payload: object, **more: Any) -> EntryId:
        late.append((self, topic, payload, more))
        return EntryId(f"{self.action_id}#{topic}:0")

    async def apart(self: Call) -> Any:
        done = await transaction(self)
        while late:
            tx, topic, payload, more = late.pop()
            async with self.seat.bench.database.transaction("tool.outbox", tx.run.tenant) as session:
                await outbox(replace(tx, session=session), topic, payload, **more)
        return done

    _replace(Tx, "outbox", later)
    _replace(Call, "transaction", apart)


def slow_end() -> None:
    """The end of a segment that waits takes long enough for somebody to decide meanwhile."""
    end = segments.end

    async def late(session: Any, execution: Any, ending: Any) -> bool:
        if ending.waits:
            await asyncio.sleep(_WINDOW_S)
        return await end(session, execution, ending)

    _replace(segments, "end", late)


def slow_question() -> None:
    """Whoever takes over needs a while until it asks what became of an attempt."""
    verdict = _part(verifying, "_verdict")

    async def late(*arguments: Any) -> Any:
        await asyncio.sleep(_QUESTION_S)
        return await verdict(*arguments)

    _replace(verifying, "_verdict", late)


def patient() -> None:
    """A segment waits for its effect for as long as that takes: one that was frozen is not fenced by its end first."""
    original = _part(Seat, "__init__")

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        object.__setattr__(self, "inline_wait_s", _PATIENCE_S)

    _replace(Seat, "__init__", made)


def waits_before_lock() -> None:
    """The end of a segment counts the waits as its calls saw them when they deferred, before the run was locked."""

    async def as_seen(_: object, __: object, wait: Any) -> Any:
        return wait

    _replace(segments, "_seen_now", as_seen)


def no_own_deadline() -> None:
    """A worker that has lost its lease does not notice, and goes on."""
    original = _part(Lease, "__init__")

    def unaware(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._on_lost = _nobody_is_told

    _replace(Lease, "__init__", unaware)
    _replace(Lease, "check", _nobody_is_told)


def no_fence() -> None:
    """What a segment intends is numbered whichever generation is the current one."""
    runs = dict(_part(events, "_RUNS"))
    for name in ("number_fenced", "number_fenced_or_cancelling"):
        runs[name] = _without(runs[name], "and generation = :generation and segment = :segment")
    _replace(events, "_RUNS", runs)


def no_attempt_check() -> None:
    """The outcome of an attempt is taken for the last one's, and who once had the ticket of a delivery still has it."""
    ours = "and d.worker_id = :worker_id and d.attempt = :ticket and d.lease_until > clock_timestamp()"
    ledger = dict(_part(actions, "_ACTIONS"))
    ledger["prepare_again_if_not_sent"] = _without(ledger["prepare_again_if_not_sent"], "and attempt = :attempt")
    for name in ("claim_prepared_with_ticket", "record_attempt_if_ticket_still_held"):
        ledger[name] = _without(ledger[name], ours)
    entries = dict(_part(outbox, "_OUTBOX"))
    entries["renew_if_mine"] = _without(
        entries["renew_if_mine"], "and state = 'claimed' and worker_id = :worker_id and attempt = :attempt"
    )
    _replace(actions, "_ACTIONS", ledger)
    _replace(attempts, "_ACTIONS", ledger)
    _replace(outbox, "_OUTBOX", entries)


def _nobody_is_told(*_: object) -> None:
    return None


def _without(statement: Any, words: str) -> Any:
    """The statement without these words, in whatever lines they stand."""
    shorter, found = re.subn(r"\s+".join(map(re.escape, words.split())), "", str(statement))
    assert found == 1, words
    return type(statement)(shorter)


def _part(owner: object, name: str) -> Any:
    return getattr(owner, name)


def _replace(owner: object, name: str, by: object) -> None:
    assert hasattr(owner, name), name
    setattr(owner, name, by)


def _killed_at(point: str) -> Callable[[Catalogue], Sequence[Faults]]:
    """Each of its passages, the last one first."""

    def faults(catalogue: Catalogue) -> Sequence[Faults]:
        return [(Fault("kill", point, n),) for n in range(catalogue.counts().get(point, 0), 0, -1)]

    return faults


def _nothing(_: Catalogue) -> Sequence[Faults]:
    return [()]


def _stopped_in_a_step(catalogue: Catalogue) -> Sequence[Faults]:
    point = "step.before_body"
    return [(Fault("stop", point, n),) for n in range(1, catalogue.counts().get(point, 0) + 1)]


def _late_news(catalogue: Catalogue) -> Sequence[Faults]:
    """Who was told that nothing was sent records it when another has sent, and has died before it could record that."""
    rest = "freeze:effect.not_sent.before_commit:1,kill:effect.after_send:1"
    numbers = range(1, catalogue.connections + 1)
    return [parse(f"rate-limited:connection:{n},{rest}") for n in numbers for _ in range(_RACES)]


_RACES = 4  # as often each is played before it is said to find nothing
_SENT = "effect.after_send"
_COMMITTED = "tool.transaction.after_commit"
_UNAWARE = (f"{__name__}:no_own_deadline",)
_SLOW = (f"{__name__}:slow_end",)
_LATE = (f"{__name__}:slow_question", f"{__name__}:patient")  # what is told late still comes first
CONTROLS = (
    Control("no verification before a second send", f"{__name__}:no_verification", _killed_at(_SENT), "double"),
    Control("random action ids", f"{__name__}:random_action_ids", _killed_at(_SENT), "double"),
    Control("receipts not recorded with the write", f"{__name__}:receipts_apart", _killed_at(_COMMITTED), "double"),
    Control("outbox written after the commit", f"{__name__}:outbox_apart", _killed_at(_COMMITTED), "lost"),
    Control("waits counted before the lock", f"{__name__}:waits_before_lock", _nothing, "stuck", _SLOW),
    Control("no generation fence", f"{__name__}:no_fence", _stopped_in_a_step, "stale", _UNAWARE),
    Control("no attempt check", f"{__name__}:no_attempt_check", _late_news, "double", (*_UNAWARE, *_LATE)),
)
