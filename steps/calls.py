"""One call of a declared tool, by kind. Each method is a step body: safe to repeat, and it answers with a value."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_core import PydanticSerializationError

from steps import gate
from steps.bench import Bench
from steps.drive import lease_s
from steps.effects import Effects
from steps.journal import Done, Journal
from steps.outcomes import call_body
from steps.tools import RESULT_BYTES_MAX, Spec
from transactions import (
    ActionState,
    ApprovalState,
    Event,
    Execution,
    FailureClass,
    Fenced,
    Run,
    Session,
    TransactionTooLong,
    Tx,
    actions,
    canonical_json,
    is_transient,
    number_fenced,
    outbox,
    receipts,
)
from transactions.actions import Request, Ticket

T = TypeVar("T")
_log = logging.getLogger("surefoot.calls")
# An effect's own attempts and verifications are what is bounded; its delivery only carries the question back.
EFFECT_DELIVERIES_MAX = 1_000_000
TRANSACTION_TRIES = 3


@dataclass(slots=True)
class Turns:
    """Which response is being worked on, and what happened to its calls so far in this execution."""

    base: int
    responses: int = 0
    response: ModelResponse | None = None
    deferred: bool = False
    failed: str | None = None

    @property
    def number(self) -> int:
        return self.base + self.responses

    def begin(self, response: ModelResponse, *, new: bool) -> None:
        """Turn to a response: a new one from the model, or the one whose calls are being resumed."""
        self.response = response
        self.responses += new
        self.deferred = False
        self.failed = None

    def call(self, call_id: str) -> tuple[int, ToolCallPart]:
        """The index of a call among the calls of its response, and the call."""
        assert self.response is not None, "a call belongs to a response"
        calls = [part for part in self.response.parts if isinstance(part, ToolCallPart)]
        return next((i, part) for i, part in enumerate(calls) if part.tool_call_id == call_id)


@dataclass(frozen=True, slots=True)
class Seat:
    """What the tools of one execution of a segment share."""

    bench: Bench
    effects: Effects
    journal: Journal
    execution: Execution
    run: Run
    agent: str
    specs: Mapping[str, Spec]
    turns: Turns
    inline_wait_s: float
    withheld: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a declared tool. Its methods are step bodies: safe to repeat, answering with values."""

    seat: Seat
    spec: Spec
    request: Request
    arguments: dict[str, Any]
    deps: Any

    async def as_value(self, call: Callable[[], Awaitable[Any]]) -> Done:
        """Call the tool's own body and turn whatever it does into a value."""

        async def value() -> Done:
            return self._value(self.spec.dump(await call()))

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
        except PydanticSerializationError as error:
            return Done({"raised": f"{name} returned what it does not declare: {error}"})
        except Exception as error:
            if is_transient(error) or isinstance(error, TransactionTooLong):
                raise
            return Done({"raised": f"{name}: {error}" if str(error) else f"{name}: {type(error).__name__}"})

    def _value(self, value: JsonValue) -> Done:
        """The result, if it can be stored."""
        text = canonical_json(value)
        if len(text.encode()) > RESULT_BYTES_MAX:
            return Done(
                {"raised": f"{self.spec.name} returned over {RESULT_BYTES_MAX} bytes: save an artifact instead"}
            )
        if "\\u0000" in text:
            return Done(
                {"raised": f"{self.spec.name} returned a NUL character, which Postgres cannot store: remove it"}
            )
        return Done({"value": value})

    async def _commit(self, name: str, body: Callable[[Session], Awaitable[T]]) -> T:
        async with self.seat.bench.database.transaction(name, self.seat.execution.tenant) as session:
            return await body(session)

    # Standing behind a call that waits, or refused because one before failed.

    async def stand_behind(self) -> Done:
        """Prepare the call and ask for its approval, and leave it until the calls before it are done."""

        async def prepare(session: Session) -> Done:
            row = await actions.prepare(session, self.seat.execution, self.request)
            kind = await self._ask(session) if self.spec.approval else "follows"
            await self._park(session)
            await self._number(session, "action.stands_behind")
            return _settled(row) or Done({"defer": "approval" if kind == "ask" else "follows"}, "deferred")

        return await self._commit("tool.stand_behind", prepare)

    async def refuse(self, why: str) -> Done:
        async def cancel(session: Session) -> Done:
            row = await actions.prepare(session, self.seat.execution, self.request)
            if row["state"] == ActionState.PREPARED:
                await actions.cancel(session, [self.request.action_id], reason=why)
                await self._number(session, "action.cancelled")
            return _settled(row) or Done({"failed": why})

        return await self._commit("tool.refuse", cancel)

    async def _ask(self, session: Session) -> str:
        """`ask` while the decision is open, else its state."""
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        state = await gate.ask(tx, self.seat.execution, self.spec, self.request)
        return "ask" if state is ApprovalState.PENDING else state

    async def _park(self, session: Session) -> None:
        """The outbox entry of an effect, in the commit that prepares it; its delivery waits for this call's turn."""
        if self.spec.kind == "effect":
            await outbox.put(
                session,
                entry_id=outbox.EntryId(self.request.action_id),
                tenant=self.seat.execution.tenant,
                run_id=self.seat.execution.run_id,
                action_id=self.request.action_id,
                topic=outbox.EFFECT,
                payload=None,
                consumers=(outbox.EFFECT,),
                parked=True,
                attempts_max=EFFECT_DELIVERIES_MAX,
            )

    async def _number(self, session: Session, kind: str) -> None:
        await number_fenced(
            session, self.seat.execution, Event(kind, {"action": self.request.action_id, "tool": self.spec.name})
        )

    # A transaction: the caller's rows, the ledger, the receipt, the outbox and the event are one commit.

    async def transaction(self) -> Done:
        done = await self._in_time(TRANSACTION_TRIES)
        self.seat.bench.wakeups.poke("outbox")
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
        row = await actions.prepare(session, self.seat.execution, self.request)
        if (done := _settled(row)) is not None:
            return done
        if (done := await self._gate(session)) is not None:
            return done
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        done = await self.as_value(lambda: self._timed(tx))
        if "value" not in cast("dict[str, JsonValue]", done.value):
            await session.rollback()
            return done
        result = cast("dict[str, JsonValue]", done.value)["value"]
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
            return Done({"defer": "approval"}, "deferred")
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
            await self._withdraw(str(error))
            return _settled(await self._load(), mine=True) or Done({"defer": "delivery"}, "deferred")
        if isinstance(prepared, Done):
            return prepared
        if prepared.ticket is not None:
            # From here the claim of the delivery is the right to act: the segment may end before the effect does.
            ticket = replace(prepared.ticket, execution=None)
            task = self.seat.effects.start(ticket, self.seat.execution.tenant, prepared.claimed)
            await asyncio.wait({task}, timeout=self.seat.inline_wait_s)
            if task.done() and isinstance(error := task.exception(), Fenced):
                raise error
        else:
            await self._others()
        row = await self._load()
        waiting_for = "verification" if row["state"] == ActionState.UNKNOWN else "delivery"
        return _settled(row, mine=prepared.ticket is not None) or Done({"defer": waiting_for}, "deferred")

    async def _prepare_and_claim(self, session: Session) -> "Done | _Prepared":
        row = await actions.prepare(session, self.seat.execution, self.request)
        if (done := _settled(row)) is not None:
            return done
        await self._park(session)
        if (done := await self._gate(session)) is not None:
            return done
        worker_id = self.seat.execution.worker_id
        attempt = await outbox.take_effect(
            session, self.request.action_id, worker_id=worker_id, lease_s=lease_s(self.spec)
        )
        await self._number(session, "action.prepared")
        if attempt is None:
            return _Prepared(None)
        ticket = Ticket(self.request.action_id, attempt, worker_id, self.seat.execution)
        if row["state"] != ActionState.PREPARED or row["attempt"] >= row["attempts_max"]:
            return _Prepared(ticket)
        tx = self.seat.bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        return _Prepared(ticket, await gate.claim(tx, ticket, self.spec, row))

    async def _withdraw(self, why: str) -> None:
        """Cancel the action: its approval does not hold any more. Nothing when somebody has sent it meanwhile."""

        async def cancel(session: Session) -> None:
            if await actions.cancel(session, [self.request.action_id], reason=why):
                await self._number(session, "action.cancelled")

        await self._commit("tool.withdraw", cancel)

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
class _Prepared:
    """An effect on its way: our ticket, if nobody else holds it, and the row if this commit claimed it."""

    ticket: Ticket | None
    claimed: Mapping[str, Any] | None = None


def _settled(row: Mapping[str, Any], *, mine: bool = False) -> Done | None:
    """The value of a settled action; how it came about, from its first receipt."""
    state = ActionState(row["state"])
    if not state.settled:
        return None
    how = "verified" if row["receipt_source"] == "verification" else "ran" if mine else "reused"
    if state is ActionState.SUCCEEDED:
        return Done({"value": row["result"]}, how)
    return Done({"retry" if row["failure"] == FailureClass.INVALID_INPUT else "failed": row["reason"]}, how)
