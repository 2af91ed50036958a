"""What a declared tool has to look like, checked while it is declared, and what the model is shown of it."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter
from pydantic_ai import RunContext

from steps.kinds import Approval, Limits
from transactions import Tx
from transactions.actions import EffectLimits, Safety

PHASE_CHARACTERS_MAX = 60


class ToolError(Exception):
    """A tool is declared wrongly. Raised while declaring, before anything runs; says what to write instead."""


def name_of(body: Callable[..., Any]) -> str:
    return getattr(body, "__name__", repr(body))


def limits_of(what: str, body: Callable[..., Any], limits: Limits) -> EffectLimits:
    """Raises ToolError for limits that bound nothing."""
    try:
        return EffectLimits(**limits)
    except ValueError as error:
        raise ToolError(f"{what} {name_of(body)}: {error}") from error


def safety_of(
    what: str, body: Callable[..., Any], *, verify: Callable[..., Any] | None, idempotent: bool, at_most_once: bool
) -> Safety:
    if verify is None and not idempotent and not at_most_once:
        raise ToolError(
            f"{what} {name_of(body)}: say how a second send is made harmless: verify=LOOKUP, idempotent=True "
            "(the other side honours action.id as key) or at_most_once=True (an unknown outcome asks a person)."
        )
    return "verify" if verify is not None else "idempotent" if idempotent else "at_most_once"


def check_first(body: Callable[..., Any], hints: Mapping[str, Any], *, kind: str, first: type) -> None:
    parameters = list(inspect.signature(body).parameters.values())
    annotation = hints.get(parameters[0].name) if parameters else None
    origin = getattr(annotation, "__origin__", annotation)
    if origin is not first:
        raise ToolError(
            f"{kind} {name_of(body)}: its first parameter must be annotated {first.__name__}[Deps], and it is "
            f"{annotation!r}. Write `async def {name_of(body)}({first.__name__.lower()}: {first.__name__}[Deps], ...)`."
        )
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters[1:]):
        raise ToolError(
            f"{kind} {name_of(body)}: name every parameter; *args, **kwargs and positional-only ones have no name."
        )


def check_same_parameters(body: Callable[..., Any], verify: Callable[..., Any], name: str) -> None:
    mine, its = (list(inspect.signature(f).parameters)[1:] for f in (body, verify))
    if mine != its:
        raise ToolError(f"effect {name}: its verifier takes {its} and must take the tool's own parameters {mine}.")


def schema_only(body: Callable[..., Any], hints: Mapping[str, Any]) -> Callable[..., Any]:
    """A function with the body's name, words and parameters, which is never what runs."""
    signature = inspect.signature(body)
    first, *rest = signature.parameters.values()

    async def declared(ctx: RunContext[Any], **_: Any) -> Any:  # noqa: ARG001
        raise ToolError(f"{name_of(body)} changes something: run its agent through Surefoot, which makes that safe.")

    declared.__name__ = name_of(body)
    declared.__doc__ = body.__doc__
    context = cast(type, RunContext[Any])
    annotations: dict[str, Any] = {**hints, first.name: context}
    declared.__annotations__ = annotations
    parameters = [first.replace(annotation=context), *(p.replace(annotation=hints.get(p.name, Any)) for p in rest)]
    declared.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return declared


def check_async(what: str, body: Callable[..., Any]) -> None:
    """An attempt has to end at its deadline, and a thread cannot be ended. Raises ToolError."""
    if not inspect.iscoroutinefunction(body):
        raise ToolError(
            f"{what} {name_of(body)}: write `async def`, with an async client: a thread would go on after its attempt "
            "is over, and could reach the other side when it is sent again."
        )


def check_key(key: Callable[..., Any], body: Callable[..., Any], what: str) -> None:
    """A plain function of the tool's own parameters that returns text. Raises ToolError."""
    if inspect.iscoroutinefunction(key):
        raise ToolError(f"{what}: its key is async: write `def`, and make the key of the arguments alone.")
    mine, its = list(inspect.signature(body).parameters)[1:], list(inspect.signature(key).parameters)
    if mine != its:
        raise ToolError(f"{what}: its key takes {its} and must take the tool's own parameters {mine}.")
    returns = inspect.signature(key).return_annotation
    if returns not in (str, "str", inspect.Signature.empty):
        raise ToolError(f"{what}: its key returns {returns!r}: return the business key as text (str).")


def check_before(before: Callable[..., Any], body: Callable[..., Any], what: str) -> None:
    """An async function of the deps and the tool's own parameters. Raises ToolError."""
    if not inspect.iscoroutinefunction(before):
        raise ToolError(f"{what}: its before is not async: write `async def`, with slow code in asyncio.to_thread.")
    mine, its = (list(inspect.signature(f).parameters)[1:] for f in (body, before))
    if mine != its:
        raise ToolError(
            f"{what}: its before takes {its} after the deps and must take the tool's own parameters {mine}."
        )


def check_requires(requires: Callable[..., Any], body: Callable[..., Any], what: str) -> None:
    """An async function of a Tx and the tool's own parameters, or one that takes any. Raises ToolError."""
    if not inspect.iscoroutinefunction(requires if inspect.isfunction(requires) else type(requires).__call__):
        raise ToolError(f"{what}: its requires is not async: write `async def`, and look with `await tx.execute(...)`.")
    first, *its = inspect.signature(requires).parameters.values()
    if first.annotation is not first.empty and getattr(first.annotation, "__origin__", first.annotation) is not Tx:
        raise ToolError(f"{what}: the first parameter of its requires is {first.annotation!r} and must be Tx[Deps].")
    if any(p.kind is p.VAR_KEYWORD for p in its):
        return
    mine, names = list(inspect.signature(body).parameters)[1:], [p.name for p in its]
    if mine != names:
        raise ToolError(f"{what}: its requires takes {names} and must take the tool's own parameters {mine}.")


def check_approval(approval: Approval[Any, ...], body: Callable[..., Any], what: str) -> None:
    """Its functions take the tool's own parameters, after a Tx and for `edit` the change. Raises ToolError."""
    mine = list(inspect.signature(body).parameters)[1:]
    for name, function, first in (
        ("when", approval.when, ["tx"]),
        ("binds", approval.binds, ["tx"]),
        ("edit", approval.edit, ["tx", "change"]),
    ):
        if function is None:
            continue
        its = list(inspect.signature(function).parameters.values())
        if any(p.kind is p.VAR_KEYWORD for p in its):
            continue
        if [p.name for p in its[len(first) :]] != mine:
            raise ToolError(
                f"{what}: {name} of its approval takes {[p.name for p in its]} and must take {[*first, *mine]}: "
                f"after the first {len(first)}, the tool's own parameters."
            )


def check_phase(phase: str, what: str) -> None:
    """Words for people, in one line. Raises ToolError."""
    if not 1 <= len(phase.strip()) <= PHASE_CHARACTERS_MAX or len(phase) > PHASE_CHARACTERS_MAX or "\n" in phase:
        raise ToolError(f"{what}: its phase is {phase!r}: give 1 to {PHASE_CHARACTERS_MAX} characters in one line.")


def undo_parser(body: Callable[..., Any], hints: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """What makes the arguments of an undo from its recorded request. Raises ToolError when it takes more than one."""
    own = _own(body)
    if len(own) != 1 or own[0] not in hints:
        name = getattr(body, "__name__", repr(body))
        raise ToolError(
            f"undo {name}: it takes the effect's result, annotated, and nothing else. Write "
            f"`async def {name}(action: Action[Deps], done: RESULT) -> None: ...`."
        )
    adapter = TypeAdapter(hints[own[0]])
    return lambda arguments: {own[0]: adapter.validate_python(arguments[own[0]])}


def check_undo(undo: Callable[..., Any], body: Callable[..., Any], hints: Mapping[str, Any]) -> None:
    """The undo takes what the effect answers. Raises ToolError."""
    takes, answers = get_type_hints(undo, include_extras=True)[_own(undo)[0]], hints.get("return", Any)
    if not _fits(answers, takes):
        raise ToolError(
            f"effect {body.__name__}: it answers {answers!r}, and its undo {undo.__name__} takes {takes!r}: "
            "let the undo take what the effect answers."
        )


def _fits(answers: Any, takes: Any) -> bool:
    if answers == takes or Any in (answers, takes):
        return True
    return inspect.isclass(answers) and inspect.isclass(takes) and issubclass(answers, takes)


def result_parameter(undo: Callable[..., Any]) -> str:
    """The name under which an undo is given the effect's result."""
    return _own(undo)[0]


def _own(body: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(body).parameters)[1:]
