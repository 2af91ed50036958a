"""What every call of a declared tool has: the action that it means, the gate before it, and its answer as a value."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_core import PydanticSerializationError

from steps import gate
from steps.journal import Done
from steps.seat import Seat, settled_value
from steps.spec import Spec
from steps.weighing import Large, TooLarge, large
from transactions import (
    UNSTORABLE,
    ActionId,
    ActionState,
    ApprovalState,
    Conflict,
    Event,
    InvalidInput,
    RequestChanged,
    Session,
    TransactionTooLong,
    actions,
    approvals,
    failures,
    is_storable,
    is_transient,
    keys,
    number_fenced,
    outbox,
    revisions,
)
from transactions.actions import Request

T = TypeVar("T")
C = TypeVar("C", bound="Calling", covariant=True)
_log = logging.getLogger("surefoot.calls")


@dataclass(frozen=True, slots=True)
class Calling:
    """One call of a declared tool. `revised`: a person has changed what it asks for."""

    seat: Seat
    spec: Spec
    request: Request
    arguments: dict[str, Any]
    deps: Any
    revised: bool = False

    async def as_value(self, call: Callable[[], Awaitable[Any]], keep: Callable[[Large], Awaitable[JsonValue]]) -> Done:
        """Call the tool's own body and turn whatever it does into a value, a small one in place of a large one."""

        async def value() -> Done:
            result = self.spec.dump(await call())
            found = large(result, inline_bytes=None if self.spec.inline else self.seat.inline_bytes)
            if not is_storable(result):
                return Done({"raised": f"{self.spec.name} returned {UNSTORABLE}: remove it"})
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

    async def _hold(self, session: Session) -> "Held[Self]":
        """The action that this call means, made if it is new, and locked."""
        execution = self.seat.execution
        if self.spec.key is None:
            first = await actions.prepare(session, execution, self.request)
            row = await revisions.current(session, first)
            return Held(self._revised(row) if row["revises"] else self, row, owned=True)
        try:
            meant = await keys.prepare(session, execution, self.request, key=lambda: self.spec.key_of(self.arguments))
        except (RequestChanged, InvalidInput, Conflict) as error:
            raise ToolFailed(str(error)) from error  # the model may ask for something else
        call = replace(self, request=replace(self.request, action_id=ActionId(meant.row["action_id"])))
        if meant.new and not meant.owned:
            first = {"call": self.request.action_id, "run": meant.row["run_id"]}
            await call._number(session, "action.shared", **first)
        return Held(call, meant.row, meant.owned)

    def _revised(self, row: Mapping[str, Any]) -> Self:
        """The call as a person has changed it."""
        request = replace(self.request, action_id=ActionId(row["action_id"]), arguments=row["request"])
        return replace(self, request=request, arguments=self.spec.parse(row["request"]), revised=True)

    def _told(self, done: Done) -> Done:
        """The model is told what was done instead of what it asked for."""
        value = cast("dict[str, JsonValue]", done.value)
        return Done({**value, "revised": self.request.arguments}, done.how) if self.revised else done

    def _gate_in(self, session: Session) -> gate.Gate:
        bench = self.seat.bench
        tx = bench.tx(session, self.seat.run, self.deps, self.request.action_id)
        return gate.Gate(tx, self.spec, bench.agents[self.seat.agent])

    def defer(self, kind: str) -> Done:
        return Done({"defer": kind, "action": self.request.action_id}, "deferred")

    async def _park(self, session: Session) -> None:
        """The outbox entry of an effect, in the commit that prepares it; its delivery waits for this call's turn."""
        if self.spec.kind == "effect":
            run = self.seat.execution
            await outbox.put_effect(session, self.request.action_id, tenant=run.tenant, run_id=run.run_id, parked=True)

    async def _number(self, session: Session, kind: str, **more: JsonValue) -> None:
        data: dict[str, JsonValue] = {"action": self.request.action_id, "tool": self.spec.name, **more}
        await number_fenced(session, self.seat.execution, Event(kind, data))

    async def _load(self) -> Mapping[str, Any]:
        return await self._commit("tool.load", lambda session: actions.get(session, self.request.action_id))

    # The gate before it.

    async def _gate(self, session: Session, row: Mapping[str, Any]) -> Done | None:
        """None when the call may be done now. Nobody is asked for an approval of what may not be done."""
        before = self._gate_in(session)
        prepared = row["state"] == ActionState.PREPARED
        if prepared and (why := await before.unmet(self.request.arguments)) is not None:
            return await self._not_done(session, why)
        if self.spec.approval is None:
            return None
        state = await before.ask(self.request.arguments)
        if state is None:
            await self._number(session, "approval.not_needed", policy=self.spec.approval.policy)
            return None
        if state is ApprovalState.PENDING:
            await self._number(session, "approval.requested")
            return self.defer("approval")
        if self.spec.kind == "effect":
            return None  # checked by the claim, in its transaction
        return await self._obey(session, before)

    async def _obey(self, session: Session, before: gate.Gate) -> Done | None:
        """What follows from what the gate has to say now: nothing, asking anew, or that it is not done."""
        objection = await before.objection(self.request.arguments)
        if objection is None:
            return None
        if not objection.final:
            await before.ask_anew(objection)
            if self.spec.kind == "effect":
                await outbox.park_effect(session, self.request.action_id, detail=objection.why)
            await self._number(session, "approval.requested", why=objection.why)
            return self.defer("approval")
        return await self._not_done(session, objection.why)

    async def _not_done(self, session: Session, why: str) -> Done:
        """Cancelled, and the model is told why; but where an attempt before may count it is on the desk."""
        if not await actions.cancel(session, [self.request.action_id], reason=why):
            await self._number(session, "action.on_the_desk", reason=why)
            return self.defer("verification")
        await self._number(session, "action.cancelled", reason=why)
        return Done({"failed": why})


@dataclass(frozen=True, slots=True)
class Held(Generic[C]):
    """The action that a call means, locked until the commit; `call` is the call under that action's id.

    `owned`: the action is this call's own, to be done by its run alone.
    """

    call: C
    row: Mapping[str, Any]
    owned: bool

    async def settled(self, session: Session) -> Done | None:
        """None while it is not. What is refused while its segment goes on is told as what is refused while it waits."""
        if self.owned and self.row["state"] == ActionState.CANCELLED:
            asked = await approvals.last(session, ActionId(self.row["action_id"]))
            if asked is not None and asked["state"] in (ApprovalState.REJECTED, ApprovalState.EXPIRED):
                return self.call.defer("approval")
        return settled_value(self.row, shared=not self.owned)
