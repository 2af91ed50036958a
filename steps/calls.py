"""One call of a declared tool, by kind. Each method is a step body: safe to repeat, and it answers with a value."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import JsonValue

from steps import gate
from steps.calling import Calling, Held
from steps.drive import Claimed, lease_s, may_count
from steps.journal import Done
from steps.outcomes import call_body
from steps.results import keep_of_read, keep_of_transaction
from steps.seat import settled_value
from steps.sharing import wake_sharers
from transactions import (
    ActionState,
    ApprovalState,
    Fenced,
    Session,
    TransactionTooLong,
    Tx,
    actions,
    attempts,
    outbox,
    receipts,
    revisions,
)
from transactions.actions import Ticket

_log = logging.getLogger("surefoot.calls")
TRANSACTION_TRIES = 3


class _Changed(Exception):
    """A person has changed the call since the work before its transaction was done: it is done for the new one."""

    def __init__(self, call: "Call") -> None:
        super().__init__(call.request.action_id)
        self.call = call


@dataclass(frozen=True, slots=True)
class Call(Calling):
    """Its methods are step bodies: safe to repeat, answering with values."""

    async def read(self, call: Callable[[], Awaitable[Any]]) -> Done:
        seat = self.seat
        return await self.as_value(
            call, lambda large: keep_of_read(seat.bench, seat.execution, seat.run, self.request.action_id, large)
        )

    # Standing behind a call that waits, or refused because one before failed.

    async def stand_behind(self) -> Done:
        """Prepare the call and ask for its approval, and leave it until the calls before it are done.

        A business key is not taken for so long: who stands behind others would let another run wait for them too.
        """
        if self.spec.key is not None:
            return Done({"defer": "follows", "action": None}, "deferred")

        async def prepare(session: Session) -> Done:
            held = await self._hold(session)
            if held.row["state"] == ActionState.CANCELLED:
                return held.call.defer("follows")  # it ends as the calls before it do, or says why in its turn
            if (done := await held.settled(session)) is not None:
                return done
            before, arguments = held.call._gate_in(session), held.call.request.arguments
            # Nobody is asked for what may not be done yet: the calls before it may be what it requires.
            asks = self.spec.approval is not None and await before.unmet(arguments) is None
            state = await before.ask(arguments) if asks else None
            await held.call._park(session)
            await held.call._number(session, "action.stands_behind")
            return held.call.defer("approval" if state is ApprovalState.PENDING else "follows")

        return await self._commit("tool.stand_behind", prepare)

    async def refuse(self, why: str) -> Done:
        if self.spec.key is not None:
            return Done({"failed": why})

        async def cancel(session: Session) -> Done:
            held = await self._hold(session)
            if held.row["state"] == ActionState.PREPARED:
                await actions.cancel(session, [held.call.request.action_id], reason=why)
                await held.call._number(session, "action.cancelled")
            return await held.settled(session) or Done({"failed": why})

        return await self._commit("tool.refuse", cancel)

    # A transaction: the caller's rows, the ledger, the receipt, the outbox and the event are one commit.

    async def transaction(self) -> Done:
        done = await self._prepared_transaction(await self._meant())
        self.seat.bench.wakeups.poke("outbox")
        if self.spec.key is not None:
            await wake_sharers(self.seat.bench.database)
        return done

    async def _meant(self) -> "Call":
        """What a person has made of it: the slow work is done for that, and not for what they put right."""
        if self.spec.before is None or self.spec.approval is None:
            return self

        async def look(session: Session) -> "Call":
            first = await actions.find(session, self.request.action_id)
            row = None if first is None else await revisions.current(session, first)
            return self if row is None or not row["revises"] else self._revised(row)

        return await self._commit("tool.load", look)

    async def _prepared_transaction(self, means: "Call") -> Done:
        """The slow work for what the call means, and the transaction, if it means that still."""
        try:
            return await means._before() or await self._in_time(TRANSACTION_TRIES, means)
        except _Changed as changed:
            return await self._prepared_transaction(changed.call)

    async def _before(self) -> Done | None:
        """The slow work before the transaction. None when that may begin."""

        async def work() -> Done:
            await self.spec.work_before(self.deps, self.arguments)
            return Done(None)

        done = await self.safely(work)
        return None if done.value is None else done

    async def _in_time(self, tries: int, means: "Call") -> Done:
        """One that took too long is done again, for it may have been the machine; after that it is the tool."""
        try:
            return await self._commit("tool.transaction", lambda session: self._transact(session, means))
        except TransactionTooLong as error:
            if tries == 1:
                return Done({"raised": f"{self.spec.name}: {error}"})
            _log.warning("%s: %s", self.request.action_id, error)
            return await self._in_time(tries - 1, means)

    async def _transact(self, session: Session, means: "Call") -> Done:
        held = await self._hold(session)
        if (done := await held.settled(session)) is not None:
            return done
        if not held.owned:
            return held.call.defer("delivery")
        if self.spec.before is not None and held.call.revised and held.row["action_id"] != means.request.action_id:
            raise _Changed(held.call)
        return await held.call._write(session, held.row)

    async def _write(self, session: Session, row: Mapping[str, Any]) -> Done:
        if (done := await self._gate(session, row)) is not None:
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
        return self._told(done)

    async def _timed(self, tx: Tx[Any]) -> Any:
        limit_s = self.seat.bench.database.limits.transaction_s
        try:
            async with asyncio.timeout(limit_s):
                return await call_body(self.spec.body, tx, self.arguments)
        except TimeoutError as error:
            raise TransactionTooLong(
                f"it took over {limit_s:g} s and was rolled back: do slow work in `before=`, and write its result here"
            ) from error

    # An effect: prepared and claimed in one commit, driven in the background, waited for a while.

    async def effect(self) -> Done:
        try:
            prepared = await self._commit("tool.effect", self._prepare_and_claim)
        except gate.Objected:
            return await self._commit("tool.objected", self._objected) or await self.effect()
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
        return settled_value(row, mine=prepared.ticket is not None, shared=not held.owned) or held.call.defer(
            waiting_for
        )

    async def _prepare_and_claim(self, session: Session) -> "Done | _Prepared":
        held = await self._hold(session)
        if (done := await held.settled(session)) is not None:
            return done
        return await held.call._claim(session, held) if held.owned else _Prepared(held)

    async def _claim(self, session: Session, held: Held["Call"]) -> "Done | _Prepared":
        began = time.monotonic()
        await self._park(session)
        if (done := await self._gate(session, held.row)) is not None:
            return done
        worker_id = self.seat.execution.worker_id
        attempt = await outbox.take_effect(
            session, self.request.action_id, worker_id=worker_id, lease_s=lease_s(self.spec)
        )
        await self._number(session, "action.prepared")
        if attempt is None:
            return _Prepared(held)
        ticket = Ticket(self.request.action_id, attempt, worker_id, self.seat.execution)
        row = held.row
        if row["state"] != ActionState.PREPARED or row["verify_first"] or row["attempt"] >= row["attempts_max"]:
            return _Prepared(held, ticket)
        claimed = await self._gate_in(session).claim(ticket, held.row)
        return _Prepared(held, ticket, Claimed(claimed, began))

    async def _objected(self, session: Session) -> Done | None:
        """The claim was rolled back. None: there is no objection (any more), so it is tried again."""
        held = await self._hold(session)
        if (done := await held.settled(session)) is not None:
            return done
        if not held.owned or held.row["state"] != ActionState.PREPARED:
            return held.call.defer("delivery")  # somebody has sent it meanwhile
        call, action_id = held.call, held.call.request.action_id
        row = await actions.get(session, action_id)
        if may_count(row):
            why = "it may not be sent again now, and an attempt may count"
            await attempts.leave_to_a_person(
                session, action_id, attempt=row["attempt"], reason=why, worker_id=self.seat.execution.worker_id
            )
            return call.defer("verification")
        await call._park(session)
        return await call._obey(session, call._gate_in(session))

    async def _others(self) -> None:
        """Another worker drives it: wait for its end, as long as for our own."""
        clock = self.seat.journal.clock
        until = clock.monotonic() + self.seat.inline_wait_s
        while (left_s := until - clock.monotonic()) > 0:
            await self.seat.bench.wakeups.wait("actions", min(left_s, 1.0))
            if ActionState((await self._load())["state"]).settled:
                return


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An effect on its way: our ticket, if nobody else holds it, and the row if this commit claimed it."""

    held: Held[Call]
    ticket: Ticket | None = None
    claimed: Claimed | None = None
