"""What is put to the test: an agent with its input, and the outside world it acts on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from pydantic import JsonValue

Person = Literal["approve", "reject", "cancel"]
# What of an effect is in the world, given its row of `surefoot.unknown_actions`: the result of each time it happened.
LookedInto = Callable[[Mapping[str, Any]], Sequence[Any]]
_NOTHING: Mapping[str, str] = MappingProxyType({})


def _no_env(_: str) -> Mapping[str, str]:
    return _NOTHING


def _as_it_is(output: object) -> object:
    return output


@dataclass(frozen=True, slots=True)
class Subject:
    """An agent, started with `input`.

    count: how often each effect of a run is in the world, by a name of the effect that is the same for every run; it is
    asked from any thread. role: who approves (None: whoever is asked for). env: what workers of a run are started with.
    agents: `module:ATTRIBUTE,...` as in SUREFOOT_AGENTS. rows: statements with `:run_id`; the rows they find are the
    run's business data, compared with those of the undisturbed run. result: what of the run's output has to be the same
    in every run (numbers that a database or a provider draws are not).
    at_most_once: tools whose effects can neither be asked about nor repeated, so that a run whose worker was struck in
    one of them rightly waits for a person; and what that person finds when they look into the world.
    person: what is said to approvals, or that it cancels the run at one. changes: tools of which something else is
    approved than was asked for, and what, as `decide` takes it. unhurried: they say it once the run waits for
    it, for an agent to which it matters what was done between two of its questions.
    """

    agent: str
    input: object
    count: Callable[[str], Mapping[str, int]]
    role: str | None = None
    env: Callable[[str], Mapping[str, str]] = _no_env
    agents: str | None = None
    rows: tuple[str, ...] = ()
    result: Callable[[Any], object] = _as_it_is
    at_most_once: Mapping[str, LookedInto] = field(default_factory=dict[str, LookedInto])
    person: Person = "approve"
    changes: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    unhurried: bool = False
