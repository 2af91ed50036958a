"""One call of a declared tool, by kind. Each method is a step body: safe to repeat, and it answers with a value."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_core import PydanticSerializationError

from steps import gate
from steps.drive import Claimed, lease_s
from steps.journal import Done
from steps.outcomes import call_body
from steps.results import keep_of_read, keep_of_transaction
from steps.seat import Seat, settled_value
from steps.sharing import wake_sharers
from steps.spec import Spec
from steps.weighing import Large, TooLarge, large
from transactions import (
    ActionId,
    ActionState,
    ApprovalState,
    Conflict,
    Event,
    Fenced,
    InvalidInput,
    RequestChanged,
    Session,
    TransactionTooLong,
    Tx,
    actions,
    canonical_json,
    failures,
    is_transient,
    keys,
    number_fenced,
    outbox,
    receipts,
)
from transactions.actions import Request, Ticket

T = TypeVar("T")
_log = logging.getLogger("surefoot.calls")
TRANSACTION_TRIES = 3


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a declared tool. Its methods are step bodies: safe to repeat, answering with values."""

    seat: Seat
    spec: Spec
    request: Request
    arguments: dict[str, Any]
    deps: Any

    async def read(self, call: Callable[[], Awaitable[Any]]) -> Done:
        seat = self.seat
        return await self.as_value(
            call, lambda large: keep_of_read(seat.bench, seat.execution, seat.run, self.request.action_id, large)
        )

    async def as_value(self, call: Callable[[], Awaitable[Any]], keep: Callable[[Large], Awaitable[JsonValue]]) -> Done:
        """Call the tool's own body and turn whatever it does into a value, a small one in place of a large one."""

        async def value() -> Done:
            result = self.spec.dump(await call())
            found = large(result, inline_bytes=None if self.spec.inline else self.seat.inline_bytes)
            if "\\u0000" in canonical_json(result):
                return Done(
                    {"raised": f"{self.spec.name} returned a NUL character, which Postgres cannot store: remove it"}
                )
            return Done({"value": result}) if found is None else Done({"value": await keep(found), "artifacts": True})

        return await self.safely(value)

    async def safely(self, body: Callable[[], Awaitable[Done]]) -> Done:
        """What the user's code raises becomes a value; not that the database is away, or that it took too long."""
        name = self.spec.name
        try:
            return await body()
        except ModelRetry as error:
            return Done({"retry": error.message})
        except ToolFailed as error:
            return Done({"failed": error.message})
        except TooLarge as error:
            return Done({"failed": f"{name} {error}"})
        except PydanticSerializationError as error:
            return Done({"raised": f"{name} returned what it does not declare: {error}"})
        except Exception as error:
            if is_transient(error) or isinstance(error, TransactionTooLong):
                raise
            _log.warning("%s raised", self.request.action_id, exc_info=error)
            return Done({"raised": f"{name}: {failures.words(error)}"})

    async def _commit(self, name: str, body: Callable[[Session], Awaitable[T]]) -> T:
        async with self.seat.bench.database.transaction(name, self.seat.execution.tenant) as session:
            return await body(session)

    async def _hold(self, session: Session) -> "_Held":
        """The action that this call means, made if it is new, and locked."""
        execution = self.seat.execution
        if self.spec.key is None:
            return _Held(self, await actions.prepare(session, execution, self.request), owned=True)
        try:
            meant = await keys.prepare(session, execution, self.request, key=lambda: self.spec.key_of(self.arguments))
        except (RequestChanged, InvalidInput, Conflict) as error:
            raise ToolFailed(str(error)) from error  # the model may ask for something else
        call = replace(self, request=replace(self.request, action_id=ActionId(meant.row["action_id"])))
        if meant.new and not meant.owned:
            first = {"call": self.request.action_id, "run": meant.row["run_id"]}
            await call._number(session, "action.shared", **first)
        return _Held(call, meant.row, meant.owned)

    def _defer(self, kind: str) -> Done:
        return Done({"defer": kind, "action": self.request.action_id}, "deferred")

    # Standing behind a call that waits, or refused because one before failed.

    async def stand_behind(self) -> Done:
        """Prepare the call and ask for its approval, and leave it until the calls before it are done.

        A business key is not taken for so long: who stands behind others would let another run wait for them too.
        """
        if self.spec.key is not None:
            return Done({"defer": "follows", "action": None}, "deferred")

        async def prepare(session: Session) -> Done:
            row = await actions.prepare(session, self.seat.execution, self.request)
            kind = await self._ask(session) if self.spec.approval else "follows"
            await self._park(session)
            await self._number(session, "action.stands_behind")
            return settled_value(row) or self._defer("approval" if kind == "ask" else "follows")

        return await self._commit("tool.stand_behind", prepare)

    async def refuse(self, why: str) -> Done:
        if self.spec.key is not None:
            return Done({"failed": why})

        async def cancel(session: Session) -> Done:
            row = await actions.prepare(session, self.seat.execution, self.request)
            if row["state"] == ActionState.PREPARED:
                await actions.cancel(session, [self.request.action_id], reason=why)
                await self._number(session, "action.cancelled")
            return settled_value(row) or Done({"failed": why})

        return await self._commit("tool.refuse", cancel)

    async def _ask(self, session: Session) -> str:
        """`ask` while the decision is open, else its state."""
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        state = await gate.ask(tx, self.seat.execution, self.spec, self.request)
        return "ask" if state is ApprovalState.PENDING else state

    async def _park(self, session: Session) -> None:
        """The outbox entry of an effect, in the commit that prepares it; its delivery waits for this call's turn."""
        if self.spec.kind == "effect":
            run = self.seat.execution
            await outbox.put_effect(session, self.request.action_id, tenant=run.tenant, run_id=run.run_id, parked=True)

    async def _number(self, session: Session, kind: str, **more: JsonValue) -> None:
        data: dict[str, JsonValue] = {"action": self.request.action_id, "tool": self.spec.name, **more}
        await number_fenced(session, self.seat.execution, Event(kind, data))

    # A transaction: the caller's rows, the ledger, the receipt, the outbox and the event are one commit.

    async def transaction(self) -> Done:
        done = await self._in_time(TRANSACTION_TRIES)
        self.seat.bench.wakeups.poke("outbox")
        if self.spec.key is not None:
            await wake_sharers(self.seat.bench.database)
        return done

    async def _in_time(self, tries: int) -> Done:
        """One that took too long is done again, for it may have been the machine; after that it is the tool."""
        try:
            return await self._commit("tool.transaction", self._transact)
        except TransactionTooLong as error:
            if tries == 1:
                return Done({"raised": f"{self.spec.name}: {error}"})
            _log.warning("%s: %s", self.request.action_id, error)
            return await self._in_time(tries - 1)

    async def _transact(self, session: Session) -> Done:
        held = await self._hold(session)
        if (done := held.settled()) is not None:
            return done
        if not held.owned:
            return held.call._defer("delivery")
        return await held.call._write(session)

    async def _write(self, session: Session) -> Done:
        if (done := await self._gate(session)) is not None:
            return done
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        action_id, bench, run = self.request.action_id, self.seat.bench, self.seat.run
        done = await self.as_value(
            lambda: self._timed(tx), lambda large: keep_of_transaction(session, bench, run, action_id, large)
        )
        outcome = cast("dict[str, JsonValue]", done.value)
        if "value" not in outcome:
            await session.rollback()
            return done
        if tx.artifacts_saved:
            outcome["artifacts"] = True
        result = outcome["value"]
        await receipts.complete_transaction(session, self.seat.execution, self.request.action_id, result=result)
        await self._number(session, "action.succeeded")
        return done

    async def _timed(self, tx: Tx[Any]) -> Any:
        limit_s = self.seat.bench.database.limits.transaction_s
        try:
            async with asyncio.timeout(limit_s):
                return await call_body(self.spec.body, tx, self.arguments)
        except TimeoutError as error:
            raise TransactionTooLong(
                f"it took over {limit_s:g} s and was rolled back: do slow work in a read, and write its result here"
            ) from error

    async def _gate(self, session: Session) -> Done | None:
        """None when the call may be done now."""
        if self.spec.approval is None:
            return None
        if await self._ask(session) == "ask":
            await self._number(session, "approval.requested")
            return self._defer("approval")
        if self.spec.kind == "effect":
            return None  # checked by the claim, in its transaction
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        why = await gate.objection(tx, self.spec, self.request.arguments)
        if why is None:
            return None
        await actions.cancel(session, [self.request.action_id], reason=why)
        await self._number(session, "action.cancelled")
        return Done({"failed": why})

    # An effect: prepared and claimed in one commit, driven in the background, waited for a while.

    async def effect(self) -> Done:
        try:
            prepared = await self._commit("tool.effect", self._prepare_and_claim)
        except gate.Objection as error:
            held = await self._withdraw(str(error))
            return settled_value(await held.call._load(), mine=True) or held.call._defer("delivery")
        if isinstance(prepared, Done):
            return prepared
        held = prepared.held
        if prepared.ticket is not None:
            # From here the claim of the delivery is the right to act: the segment may end before the effect does.
            ticket = replace(prepared.ticket, execution=None)
            task = self.seat.effects.start(ticket, self.seat.execution.tenant, prepared.claimed)
            await asyncio.wait({task}, timeout=self.seat.inline_wait_s)
            if task.done() and isinstance(error := task.exception(), Fenced):
                raise error
        elif held.owned or held.row["state"] == ActionState.IN_FLIGHT:
            await held.call._others()
        row = await held.call._load()
        if not held.owned and row["state"] == ActionState.CANCELLED:
            return await self.effect()  # its owner gave it up unsent: now it is this call's turn
        waiting_for = "verification" if row["state"] == ActionState.UNKNOWN else "delivery"
        return settled_value(row, mine=prepared.ticket is not None, shared=not held.owned) or held.call._defer(
            waiting_for
        )

    async def _prepare_and_claim(self, session: Session) -> "Done | _Prepared":
        held = await self._hold(session)
        if (done := held.settled()) is not None:
            return done
        return await held.call._claim(session, held) if held.owned else _Prepared(held)

    async def _claim(self, session: Session, held: "_Held") -> "Done | _Prepared":
        began = time.monotonic()
        await self._park(session)
        if (done := await self._gate(session)) is not None:
            return done
        worker_id = self.seat.execution.worker_id
        attempt = await outbox.take_effect(
            session, self.request.action_id, worker_id=worker_id, lease_s=lease_s(self.spec)
        )
        await self._number(session, "action.prepared")
        if attempt is None:
            return _Prepared(held)
        ticket = Ticket(self.request.action_id, attempt, worker_id, self.seat.execution)
        if held.row["state"] != ActionState.PREPARED or held.row["attempt"] >= held.row["attempts_max"]:
            return _Prepared(held, ticket)
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        return _Prepared(held, ticket, Claimed(await gate.claim(tx, ticket, self.spec, held.row), began))

    async def _withdraw(self, why: str) -> "_Held":
        """Cancel the action: its approval does not hold any more. Nothing when somebody has sent it meanwhile."""

        async def cancel(session: Session) -> _Held:
            held = await self._hold(session)
            if held.owned and await actions.cancel(session, [held.call.request.action_id], reason=why):
                await held.call._number(session, "action.cancelled")
            return held

        return await self._commit("tool.withdraw", cancel)

    async def _others(self) -> None:
        """Another worker drives it: wait for its end, as long as for our own."""
        clock = self.seat.journal.clock
        until = clock.monotonic() + self.seat.inline_wait_s
        while (left_s := until - clock.monotonic()) > 0:
            await self.seat.bench.wakeups.wait("actions", min(left_s, 1.0))
            if ActionState((await self._load())["state"]).settled:
                return

    async def _load(self) -> Mapping[str, Any]:
        return await self._commit("tool.load", lambda session: actions.get(session, self.request.action_id))


@dataclass(frozen=True, slots=True)
class _Held:
    """The action that a call means, locked until the commit; `call` is the call under that action's id.

    `owned`: the action is this call's own, to be done by its run alone.
    """

    call: Call
    row: Mapping[str, Any]
    owned: bool

    def settled(self) -> Done | None:
        return settled_value(self.row, shared=not self.owned)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An effect on its way: our ticket, if nobody else holds it, and the row if this commit claimed it."""

    held: _Held
    ticket: Ticket | None = None
    claimed: Claimed | None = None
