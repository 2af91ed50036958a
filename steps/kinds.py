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
PEOPLE_MAX = 10


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


@dataclass(frozen=True, slots=True)
class Escalation:
    """After this time without a decision, others may decide too: `role:NAME` or `user:NAME`, one or several."""

    after: timedelta
    to: str | Sequence[str]

    def __post_init__(self) -> None:
        _names("Escalation(to=...)", self.to)
        if self.after <= timedelta(0):
            raise ValueError(f"Escalation(after={self.after!r}): give a positive time, such as timedelta(hours=8).")

    @property
    def approvers(self) -> tuple[str, ...]:
        return _names("Escalation(to=...)", self.to)


@dataclass(frozen=True)  # no slots, as `Found`
class Approval(Generic[D, P]):
    """People have to agree before the call is done. A modifier of transaction and effect.

    by: `role:NAME` or `user:NAME`, or several, any of whom may. binds: what the decision is bound to, as immutable
    references (an artifact's version and hash, the system it goes to); default: the arguments. when: whether this call
    is asked about at all, and `policy`, its name for people; default: always. people_min: so many different people.
    not_requester: not who started the run. expires: how long the question stands, and the approval holds. remind: how
    often those who are subscribed to `approval.reminder` are told. edit: makes of what an approver
    gives the arguments to change; default: what they give is that. A `ValueError` of it is told to them in its words.

    All of it is computed when asking and again, in the transaction of the claim, when doing: what is not as it was
    approved is asked for anew.
    """

    by: str | Sequence[str]
    binds: Callable[Concatenate[Tx[D], P], Awaitable[Mapping[str, Any]]] | None = None
    expires: timedelta = timedelta(days=7)
    when: Callable[Concatenate[Tx[D], P], bool | Awaitable[bool]] | None = None
    policy: str = "always"
    people_min: int = 1
    not_requester: bool = False
    remind: timedelta | None = None
    escalate: Escalation | None = None
    edit: Callable[Concatenate[Tx[D], JsonValue, P], Awaitable[Mapping[str, Any]]] | None = None

    def __post_init__(self) -> None:
        _names(f"Approval(by={self.by!r})", self.by)
        if self.expires <= timedelta(0):
            raise ValueError(f"Approval(expires={self.expires!r}): give a positive time, such as timedelta(days=3).")
        if self.remind is not None and self.remind < timedelta(minutes=1):
            raise ValueError(f"Approval(remind={self.remind!r}): give at least a minute, such as timedelta(hours=4).")
        if not 1 <= self.people_min <= PEOPLE_MAX:
            raise ValueError(f"Approval(people_min={self.people_min!r}): give 1 to {PEOPLE_MAX}.")
        if self.when is not None and self.policy == "always":
            raise ValueError("Approval(when=...): name the rule for people too, such as policy='refunds above 1000'.")
        if self.when is None and self.policy != "always":
            raise ValueError(f"Approval(policy={self.policy!r}): give the rule itself, too: when=FUNCTION.")
        if self.escalate is not None and self.escalate.after >= self.expires:
            raise ValueError("Approval(escalate=...): it has to come before the question expires.")

    @property
    def approvers(self) -> tuple[str, ...]:
        return _names("Approval(by=...)", self.by)


def _names(where: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Each once, in their order. Raises ValueError."""
    names = (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))
    for name in names:
        kind, _, rest = name.partition(":")
        if kind not in ("role", "user") or not rest:
            raise ValueError(f'{where}: say "role:NAME" or "user:NAME".')
    if not names:
        raise ValueError(f'{where}: nobody could decide: name at least one, such as "role:manager".')
    return names
