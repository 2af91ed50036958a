"""What each kind of tool is given and may answer. The first parameter's type is the kind's contract."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypedDict, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from transactions import ActionId, Run, Tx

D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["read", "transaction", "effect"]


class Limits(TypedDict, total=False):
    """Those of `EffectLimits` that an effect is given."""

    attempt_s: float
    attempts_max: int
    elapsed_s_max: float
    verifications_max: int


@dataclass(frozen=True, slots=True)
class Action(Generic[D]):
    """First parameter of an `effect` and of its verifier.

    `id` is the same at every attempt, replay and recovery: give it to the other side as its idempotency key or as the
    reference to search for. `attempt` counts from 1, `generation` is for services that can fence, `bound` is what a
    person approved (empty without an approval).
    """

    deps: D
    id: ActionId
    attempt: int
    generation: int
    run: Run
    bound: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)  # no slots: Python 3.11 cannot call `Found[Draft](...)` of a frozen generic that has them
class Found(Generic[R]):
    """It happened, and this is the answer it gave (or would have given). `evidence` is kept for people."""

    result: R
    evidence: JsonValue = None


@dataclass(frozen=True, slots=True)
class Absent:
    """Proof that it did not happen. Believed only after the attempt's own deadline; then it is sent again."""

    evidence: JsonValue = None


@dataclass(frozen=True, slots=True)
class Unsure:
    """Cannot tell now. Nothing is sent; the question is asked again later."""

    evidence: JsonValue = None


def from_matches(matches: Sequence[R], evidence: JsonValue = None) -> Found[R] | Absent | Unsure:
    """The verdict of a search whose system shows everything at once: none is Absent, and more than one is Unsure.

    evidence: kept for people; more than one are listed beside it.
    """
    if len(matches) > 1:
        both = [cast(JsonValue, to_jsonable_python(match, fallback=str)) for match in matches]
        return Unsure({"matches": both, "evidence": evidence})
    return Found(matches[0], evidence) if matches else Absent(evidence)


class NotSent(Exception):
    """Raise from an effect when nothing came of it there: it is sent again, not before `retry_after_s` seconds."""

    def __init__(self, *words: object, retry_after_s: float | None = None) -> None:
        super().__init__(*words)
        self.retry_after_s = retry_after_s


class Refused(Exception):
    """Raise from an effect when the other side said no for good: the model is told, and it is not sent again."""


class NotAllowed(Exception):
    """Raise from an effect when the other side does not let us: it stops until a person has put that right."""


class KeyConflict(Exception):
    """Raise from an effect when the other side has `action.id` with another request: a person has to look."""


@dataclass(frozen=True)  # no slots, as `Found`
class Approval(Generic[D, P]):
    """A person has to agree before the call is done. A modifier of transaction and effect.

    by: `role:NAME` or `user:NAME`. binds: what the decision is bound to, as immutable references (an artifact's version
    and hash); computed when asking and again, in the same transaction as the claim, when doing. Default: the arguments.
    """

    by: str
    binds: Callable[Concatenate[Tx[D], P], Awaitable[Mapping[str, Any]]] | None = None
    expires: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        kind, _, name = self.by.partition(":")
        if kind not in ("role", "user") or not name:
            raise ValueError(f'Approval(by={self.by!r}): say by="role:NAME" or by="user:NAME".')
        if self.expires <= timedelta(0):
            raise ValueError(f"Approval(expires={self.expires!r}): give a positive time, such as timedelta(days=3).")
