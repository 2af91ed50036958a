"""A declared tool: what those who offer it, call it, and drive its effects need to know of it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from steps.declaring import ToolError, result_parameter
from steps.kinds import Approval, Kind
from steps.weighing import TooLarge, large, refuse_too_large
from transactions import InvalidInput, canonical_json
from transactions.actions import EffectLimits, Safety
from transactions.canonical import as_storable
from transactions.failures import Classify
from transactions.undo import Way

RESULT_BYTES_MAX = 512 * 1024


class Unkept(Exception):
    """An effect was done, and what it answered cannot be kept."""


@dataclass(frozen=True, slots=True)
class Spec:
    """`parse` makes the arguments of a call; `key` to `phase`: as declared; `inline`: a large result stays a result."""

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
    key: Callable[..., Any] | None = None
    before: Callable[..., Awaitable[object]] | None = None
    undo: "Spec | None" = None
    undoes: bool = False
    requires: Callable[..., Awaitable[str | None]] | None = None
    phase: str | None = None
    inline: bool = False

    def whole(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, with the tool's defaults for those that are not given."""
        parameters = inspect.signature(self.body).parameters.values()
        given = {p.name: p.default for p in parameters if p.default is not p.empty}
        return {**given, **arguments}

    async def work_before(self, deps: object, arguments: Mapping[str, Any]) -> None:
        """Do what comes before the transaction. Raises what the tool's `before` raises."""
        if self.before is not None:
            await self.before(deps, **self.whole(arguments))

    def key_of(self, arguments: Mapping[str, Any]) -> str:
        """The business key of a call. Raises what the tool's `key` raises, and ToolError when that is no text."""
        assert self.key is not None
        key = self.key(**self.whole(arguments))
        if not isinstance(key, str):
            raise ToolError(f"key of {self.name}: it returned {type(key).__name__}; return the business key as text.")
        return key

    @property
    def parameters(self) -> frozenset[str]:
        """The names of what the model gives."""
        return frozenset([*inspect.signature(self.body).parameters][1:])

    @property
    def way(self) -> Way:
        """Of an undo: how it undoes."""
        return Way(self.name, result_parameter(self.body), self.safety, self.limits)

    def dump(self, value: object) -> JsonValue:
        """The result as JSON. Raises TooLarge, and pydantic's error when the value is not of the declared type."""
        refuse_too_large(value)
        return cast(JsonValue, self.result.dump_python(value, mode="json", warnings="error"))

    def keep(self, value: object) -> JsonValue:
        """An effect's result as JSON that can be kept. Raises Unkept, for what happened has no answer then."""
        try:
            result = as_storable(self.dump(value))
            large(result, inline_bytes=None)
        except TooLarge as error:
            raise Unkept(f"it {error}") from error
        except ValueError as error:
            raise Unkept(f"it answered what {self.name} does not declare: {error}") from error
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
