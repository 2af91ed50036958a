"""Declare tools by kind. The model sees the parameters after the first; the first one's type is the kind's contract."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, get_type_hints, overload

from pydantic import TypeAdapter
from pydantic_ai import FunctionToolset, RunContext

from steps.declaring import (
    ToolError,
    check_approval,
    check_async,
    check_before,
    check_first,
    check_key,
    check_phase,
    check_requires,
    check_same_parameters,
    check_undo,
    limits_of,
    name_of,
    safety_of,
    schema_only,
    undo_parser,
)
from steps.kinds import Absent, Action, Approval, Found, Kind, Limits, Unsure
from steps.requires import After
from steps.spec import Spec
from transactions import Tx
from transactions.actions import EffectLimits, Safety
from transactions.failures import Classify

D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")

METADATA_KEY = "surefoot"

Verifier = Callable[Concatenate[Action[D], P], Awaitable[Found[R] | Absent | Unsure]]
Effect = Callable[Concatenate[Action[D], P], Awaitable[R]]
Transaction = Callable[Concatenate[Tx[D], P], Awaitable[R]]
Read = Callable[Concatenate[RunContext[D], P], R]
Before = Callable[Concatenate[D, P], Awaitable[object]]
Key = Callable[P, str]
Undo = Callable[[Action[D], R], Awaitable[object]]
Requires = Callable[Concatenate[Tx[D], P], Awaitable[str | None]]


class Tools(FunctionToolset[D], Generic[D]):
    """A pydantic-ai toolset whose tools say what they do to the world. `id` names it in errors.

    classify: says of an error that a tool raised which `FailureClass` it is, or None: as `transactions.failures` says.
    """

    def __init__(self, id: str, *, classify: Classify | None = None) -> None:
        super().__init__(id=id)
        self._classify = classify
        self.specs: dict[str, Spec] = {}

    @overload
    def read(self, body: Read[D, P, R], /) -> Read[D, P, R]: ...
    @overload
    def read(self, *, phase: str | None = None) -> Callable[[Read[D, P, R]], Read[D, P, R]]: ...
    def read(self, *bodies: Callable[..., Any], phase: str | None = None) -> Callable[..., Any]:
        """Reads, and changes nothing: recorded once, retried freely. A sync body runs in a thread.

        `phase=`: what people see of the run once the model has asked for it, such as "Analysing"; of every kind.
        """

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            self._declare(body, kind="read", safety="transaction", first=RunContext, phase=phase)
            return body

        return declare(*bodies) if bodies else declare

    @overload
    def transaction(self, body: Transaction[D, P, R], /) -> Transaction[D, P, R]: ...
    @overload
    def transaction(
        self,
        *,
        approval: Approval[D, P] | None = None,
        key: Key[P] | None = None,
        before: Before[D, P] | None = None,
        requires: Requires[D, P] | After | None = None,
        phase: str | None = None,
    ) -> Callable[[Transaction[D, P, R]], Transaction[D, P, R]]: ...
    def transaction(
        self,
        *bodies: Callable[..., Any],
        approval: Any = None,
        key: Any = None,
        before: Any = None,
        requires: Any = None,
        phase: str | None = None,
    ) -> Callable[..., Any]:
        """Writes in this database: your rows, the ledger, the outbox and the result are one commit.

        `key=`: of the tool's own parameters, the business key under which it is done once for all runs.
        `before=`: slow work that may be done again, with the deps and the tool's own parameters, before the transaction
        begins; what it comes to is kept in the deps. It has no limit of time, and holds nothing.
        `requires=`: looks, in the transaction that does the call, whether it may be done: None, or why not, in words
        for the model. What others may change meanwhile it locks (`for share`). See `after`.
        """

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            if not inspect.iscoroutinefunction(body):
                raise ToolError(f"transaction {name_of(body)}: its session is async, so write `async def`.")
            self._declare(
                body,
                kind="transaction",
                safety="transaction",
                first=Tx,
                approval=approval,
                key=key,
                before=before,
                requires=requires,
                phase=phase,
            )
            return body

        return declare(*bodies) if bodies else declare

    @overload
    def effect(
        self,
        *,
        verify: Verifier[D, P, R],
        approval: Approval[D, P] | None = None,
        key: Key[P] | None = None,
        undo: Undo[D, R] | None = None,
        requires: Requires[D, P] | After | None = None,
        phase: str | None = None,
        **limits: Unpack[Limits],
    ) -> Callable[[Effect[D, P, R]], Effect[D, P, R]]: ...
    @overload
    def effect(
        self,
        *,
        idempotent: bool = False,
        at_most_once: bool = False,
        approval: Approval[D, P] | None = None,
        key: Key[P] | None = None,
        undo: Undo[D, R] | None = None,
        requires: Requires[D, P] | After | None = None,
        phase: str | None = None,
        **limits: Unpack[Limits],
    ) -> Callable[[Effect[D, P, R]], Effect[D, P, R]]: ...
    def effect(
        self,
        *,
        verify: Callable[..., Any] | None = None,
        idempotent: bool = False,
        at_most_once: bool = False,
        approval: Any = None,
        key: Callable[..., str] | None = None,
        undo: Callable[..., Any] | None = None,
        requires: Callable[..., Any] | None = None,
        phase: str | None = None,
        **limits: Unpack[Limits],
    ) -> Callable[..., Any]:
        """Touches the outside, once. Say how a second send is made harmless:

        `verify=`: it is looked up before it is sent again. `idempotent=True`: the other side honours `action.id` as
        key. `at_most_once=True`: neither is possible, so an unknown outcome waits for a person.
        `key=`: of the tool's own parameters, the business key under which it is done once for all runs.
        `requires=`: as of a transaction, looked at in the transaction that claims it.
        `undo=`: what a person may ask for when the run is over, declared with `@tools.undo`.
        limits: those of `EffectLimits`.
        """

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            check_async("effect", body)
            self._declare(
                body,
                kind="effect",
                safety=safety_of("effect", body, verify=verify, idempotent=idempotent, at_most_once=at_most_once),
                first=Action,
                verify=verify,
                approval=approval,
                key=key,
                undo=undo,
                requires=requires,
                phase=phase,
                limits=limits_of("effect", body, limits),
            )
            return body

        return declare

    @overload
    def undo(
        self,
        *,
        verify: Verifier[D, P, R],
        **limits: Unpack[Limits],
    ) -> Callable[[Effect[D, P, R]], Effect[D, P, R]]: ...
    @overload
    def undo(
        self,
        *,
        idempotent: bool = False,
        at_most_once: bool = False,
        **limits: Unpack[Limits],
    ) -> Callable[[Effect[D, P, R]], Effect[D, P, R]]: ...
    def undo(
        self,
        *,
        verify: Callable[..., Any] | None = None,
        idempotent: bool = False,
        at_most_once: bool = False,
        **limits: Unpack[Limits],
    ) -> Callable[..., Any]:
        """Takes back what an effect did, and is given its result as the second parameter. The model never sees it.

        An action of its own: it says like any effect how a second send is made harmless.
        """

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            check_async("undo", body)
            self._declare(
                body,
                kind="effect",
                safety=safety_of("undo", body, verify=verify, idempotent=idempotent, at_most_once=at_most_once),
                first=Action,
                verify=verify,
                undoes=True,
                limits=limits_of("undo", body, limits),
            )
            return body

        return declare

    def _declare(
        self,
        body: Callable[..., Any],
        *,
        kind: Kind,
        safety: Safety,
        first: type,
        verify: Callable[..., Any] | None = None,
        approval: Approval[Any, ...] | None = None,
        key: Callable[..., str] | None = None,
        before: Callable[..., Any] | None = None,
        undo: Callable[..., Any] | None = None,
        undoes: bool = False,
        requires: Callable[..., Any] | None = None,
        phase: str | None = None,
        limits: EffectLimits | None = None,
    ) -> None:
        name = name_of(body)
        hints = get_type_hints(body, include_extras=True)
        check_first(body, hints, kind=kind, first=first)
        if verify is not None:
            check_same_parameters(body, verify, name)
        if key is not None:
            check_key(key, body, f"{kind} {name}")
        if before is not None:
            check_before(before, body, f"{kind} {name}")
        if requires is not None:
            check_requires(requires, body, f"{kind} {name}")
        if approval is not None:
            check_approval(approval, body, f"{kind} {name}")
        if phase is not None:
            check_phase(phase, f"{kind} {name}")
        if name in self.specs and (undoes or self.specs[name].undoes):
            raise ToolError(f"toolset {self.id}: two tools are called {name}: rename one.")
        gated = approval is not None
        self.specs[name] = Spec(
            name=name,
            kind=kind,
            safety=safety,
            body=body,
            verify=verify,
            approval=approval,
            limits=limits or EffectLimits(),
            classify=self._classify,
            result=TypeAdapter(hints.get("return", Any)),
            parse=undo_parser(body, hints) if undoes else self._offer(body, hints, kind=kind, gated=gated),
            key=key,
            before=before,
            undo=None if undo is None else self._undo_of(undo, body, hints),
            undoes=undoes,
            requires=requires,
            phase=phase,
        )

    def _offer(
        self, body: Callable[..., Any], hints: Mapping[str, Any], *, kind: Kind, gated: bool
    ) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Offer the tool to the model. Returns what parses the arguments that it gives."""
        name = name_of(body)
        tool = self.add_function(
            body if kind == "read" else schema_only(body, hints),
            takes_ctx=True,
            name=name,
            metadata={METADATA_KEY: {"tool": name, "kind": kind}},
            sequential=kind == "effect" or gated,
        )
        validator = tool.function_schema.validator
        return lambda arguments: cast("dict[str, Any]", validator.validate_python(dict(arguments)))

    def _undo_of(self, undo: Callable[..., Any], body: Callable[..., Any], hints: Mapping[str, Any]) -> Spec:
        declared = self.specs.get(name_of(undo))
        if declared is None or declared.body is not undo or not declared.undoes:
            raise ToolError(
                f"effect {name_of(body)}: its undo {name_of(undo)} is not declared. Write `@tools.undo(...)` above "
                f"it, on the same toolset {self.id!r}, and before the effect."
            )
        check_undo(undo, body, hints)
        return declared
