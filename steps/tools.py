"""Declare tools by kind. The model sees the parameters after the first; the first one's type is the kind's contract."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import FunctionToolset, RunContext

from steps.kinds import (
    ATTEMPT_S,
    ATTEMPTS_MAX,
    ELAPSED_S_MAX,
    VERIFICATIONS_MAX,
    Absent,
    Action,
    Approval,
    EffectLimits,
    Found,
    Kind,
    Unsure,
)
from transactions import InvalidInput, Tx, canonical_json
from transactions.actions import Safety
from transactions.failures import Classify

D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")

METADATA_KEY = "surefoot"

Verifier = Callable[Concatenate[Action[D], P], Awaitable[Found[R] | Absent | Unsure]]
Effect = Callable[Concatenate[Action[D], P], Awaitable[R]]
Transaction = Callable[Concatenate[Tx[D], P], Awaitable[R]]
Read = Callable[Concatenate[RunContext[D], P], R]


RESULT_BYTES_MAX = 512 * 1024


class Unkept(Exception):
    """An effect was done, and what it answered cannot be kept."""


class ToolError(Exception):
    """A tool is declared wrongly. Raised while declaring, before anything runs; says what to write instead."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A declared tool: what the toolset wrapper and the relay need to know of it."""

    name: str
    kind: Kind
    safety: Safety
    body: Callable[..., Any]
    verify: Callable[..., Awaitable[Any]] | None
    approval: Approval[Any, ...] | None
    limits: EffectLimits
    classify: Classify | None
    result: TypeAdapter[Any]
    parse: Callable[[Mapping[str, Any]], dict[str, Any]]

    def dump(self, value: object) -> JsonValue:
        """The result as JSON. Raises pydantic's error when the value is not of the declared type."""
        return cast(JsonValue, self.result.dump_python(value, mode="json", warnings="error"))

    def keep(self, value: object) -> JsonValue:
        """An effect's result as JSON that can be kept. Raises Unkept, for what happened has no answer then."""
        try:
            result = self.dump(value)
            size = len(canonical_json(result).encode())
        except ValueError as error:
            raise Unkept(f"it answered what {self.name} does not declare: {error}") from error
        if size > RESULT_BYTES_MAX:
            raise Unkept(f"it answered {size} bytes, over {RESULT_BYTES_MAX}: return less, such as a reference")
        return result

    def accept(self, value: JsonValue) -> JsonValue:
        """A result that a person gives, as the tool itself would have given it. Raises InvalidInput."""
        try:
            return self.dump(self.result.validate_json(canonical_json(value)))
        except ValueError as error:
            words = str(error)
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                where = "".join(f"{part}: " for part in first["loc"])
                words = f"{where}{first['msg']}"
            raise InvalidInput(
                f"{self.name} does not answer that ({words}): give a result like one of its own, as JSON."
            ) from error


class Tools(FunctionToolset[D], Generic[D]):
    """A pydantic-ai toolset whose tools say what they do to the world. `id` names it in errors.

    classify: says of an error that a tool raised which `FailureClass` it is, or None: as `transactions.failures` says.
    """

    def __init__(self, id: str, *, classify: Classify | None = None) -> None:
        super().__init__(id=id)
        self._classify = classify
        self.specs: dict[str, Spec] = {}

    def read(self, body: Read[D, P, R]) -> Read[D, P, R]:
        """Reads, and changes nothing: recorded once, retried freely. A sync body runs in a thread."""
        self._declare(body, kind="read", safety="transaction", first=RunContext)
        return body

    @overload
    def transaction(self, body: Transaction[D, P, R], /) -> Transaction[D, P, R]: ...
    @overload
    def transaction(self, *, approval: Approval[D, P]) -> Callable[[Transaction[D, P, R]], Transaction[D, P, R]]: ...
    def transaction(self, *bodies: Callable[..., Any], approval: Any = None) -> Callable[..., Any]:
        """Writes in this database: your rows, the ledger, the outbox and the result are one commit."""

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            if not inspect.iscoroutinefunction(body):
                raise ToolError(f"transaction {_name(body)}: its session is async, so write `async def`.")
            self._declare(body, kind="transaction", safety="transaction", first=Tx, approval=approval)
            return body

        return declare(*bodies) if bodies else declare

    @overload
    def effect(
        self,
        *,
        verify: Verifier[D, P, R],
        idempotent: bool = False,
        approval: Approval[D, P] | None = None,
        attempt_s: float = ATTEMPT_S,
        attempts_max: int = ATTEMPTS_MAX,
        elapsed_s_max: float = ELAPSED_S_MAX,
        verifications_max: int = VERIFICATIONS_MAX,
    ) -> Callable[[Effect[D, P, R]], Effect[D, P, R]]: ...
    @overload
    def effect(
        self,
        *,
        idempotent: bool = False,
        at_most_once: bool = False,
        approval: Approval[D, P] | None = None,
        attempt_s: float = ATTEMPT_S,
        attempts_max: int = ATTEMPTS_MAX,
        elapsed_s_max: float = ELAPSED_S_MAX,
    ) -> Callable[[Effect[D, P, R]], Effect[D, P, R]]: ...
    def effect(
        self,
        *,
        verify: Callable[..., Any] | None = None,
        idempotent: bool = False,
        at_most_once: bool = False,
        approval: Any = None,
        attempt_s: float = ATTEMPT_S,
        attempts_max: int = ATTEMPTS_MAX,
        elapsed_s_max: float = ELAPSED_S_MAX,
        verifications_max: int = VERIFICATIONS_MAX,
    ) -> Callable[..., Any]:
        """Touches the outside, once. Say how a second send is made harmless:

        `verify=`: it is looked up before it is sent again. `idempotent=True`: the other side honours `action.id` as
        key. `at_most_once=True`: neither is possible, so an unknown outcome waits for a person.
        `attempt_s`: seconds after which an attempt is over; nothing of it may reach the other side later. The other
        limits are those of `EffectLimits`.
        """

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            try:
                limits = EffectLimits(attempt_s, attempts_max, elapsed_s_max, verifications_max)
            except ValueError as error:
                raise ToolError(f"effect {_name(body)}: {error}") from error
            if verify is None and not idempotent and not at_most_once:
                raise ToolError(
                    f"effect {_name(body)}: say how a second send is made harmless: verify=LOOKUP, idempotent=True "
                    "(the other side honours action.id as key) or at_most_once=True (an unknown outcome asks a person)."
                )
            safety: Safety = "verify" if verify is not None else "idempotent" if idempotent else "at_most_once"
            self._declare(
                body,
                kind="effect",
                safety=safety,
                first=Action,
                verify=verify,
                approval=approval,
                limits=limits,
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
        limits: EffectLimits | None = None,
    ) -> None:
        name = _name(body)
        hints = get_type_hints(body, include_extras=True)
        _check_first(body, hints, kind=kind, first=first)
        if verify is not None:
            _check_same_parameters(body, verify, name)
        tool = self.add_function(
            body if kind == "read" else _schema_only(body, hints),
            takes_ctx=True,
            name=name,
            metadata={METADATA_KEY: {"tool": name, "kind": kind}},
            sequential=kind == "effect" or approval is not None,
        )
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
            parse=lambda arguments: cast(
                "dict[str, Any]", tool.function_schema.validator.validate_python(dict(arguments))
            ),
        )


def _name(body: Callable[..., Any]) -> str:
    return getattr(body, "__name__", repr(body))


def _check_first(body: Callable[..., Any], hints: Mapping[str, Any], *, kind: str, first: type) -> None:
    parameters = list(inspect.signature(body).parameters.values())
    annotation = hints.get(parameters[0].name) if parameters else None
    origin = getattr(annotation, "__origin__", annotation)
    if origin is not first:
        raise ToolError(
            f"{kind} {_name(body)}: its first parameter must be annotated {first.__name__}[Deps], and it is "
            f"{annotation!r}. Write `async def {_name(body)}({first.__name__.lower()}: {first.__name__}[Deps], ...)`."
        )
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters[1:]):
        raise ToolError(
            f"{kind} {_name(body)}: name every parameter; *args, **kwargs and positional-only ones have no name."
        )


def _check_same_parameters(body: Callable[..., Any], verify: Callable[..., Any], name: str) -> None:
    mine, its = (list(inspect.signature(f).parameters)[1:] for f in (body, verify))
    if mine != its:
        raise ToolError(f"effect {name}: its verifier takes {its} and must take the tool's own parameters {mine}.")


def _schema_only(body: Callable[..., Any], hints: Mapping[str, Any]) -> Callable[..., Any]:
    """A function with the body's name, words and parameters, which is never what runs."""
    signature = inspect.signature(body)
    first, *rest = signature.parameters.values()

    async def declared(ctx: RunContext[Any], **_: Any) -> Any:  # noqa: ARG001
        raise ToolError(f"{_name(body)} changes something: run its agent through Surefoot, which makes that safe.")

    declared.__name__ = _name(body)
    declared.__doc__ = body.__doc__
    context = cast(type, RunContext[Any])
    annotations: dict[str, Any] = {**hints, first.name: context}
    declared.__annotations__ = annotations
    parameters = [first.replace(annotation=context), *(p.replace(annotation=hints.get(p.name, Any)) for p in rest)]
    declared.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return declared
