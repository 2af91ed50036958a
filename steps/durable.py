"""`durable(...)`: an agent with a name, a version, deps that can be made anywhere, and limits."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import Agent
from pydantic_ai.durable_exec import BaseDurabilityCapability
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import to_json

from steps.declaring import ToolError
from steps.requires import After
from steps.spec import RESULT_BYTES_MAX, Spec
from steps.state import Migration, StateVersions
from steps.tools import Tools
from transactions import InvalidInput, Run, canonical_json
from transactions.migrate import Tables
from transactions.undo import Way

D = TypeVar("D")
I = TypeVar("I")  # noqa: E741  the input's type
I_contra = TypeVar("I_contra", contravariant=True)
STATE_S_MAX = 10 * 366 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Bounds of one run. `requests_max`: model requests; `segment_turns_max`: turns after which a segment hands on;
    `inline_wait_s`: seconds an effect may take before the run waits for it without a worker; `result_inline_bytes`: a
    tool's result that is larger, as JSON, is kept as an artifact, of which the model is given the head.

    `queued_s_max` to `cancelling_s_max`: seconds in one go in a state, after which the run is listed as stuck.
    """

    requests_max: int = 200
    segment_turns_max: int = 25
    inline_wait_s: float = 10.0
    result_inline_bytes: int = 32 * 1024
    queued_s_max: float = 300.0
    running_s_max: float = 3600.0
    waiting_s_max: float = 7 * 24 * 3600.0
    held_s_max: float = 24 * 3600.0
    cancelling_s_max: float = 60.0

    def __post_init__(self) -> None:
        if not all(0 < seconds <= STATE_S_MAX for seconds in self.of_states.values()):
            raise ValueError(f"Seconds in a state are above 0 and at most {STATE_S_MAX:g}: {self.of_states}.")
        if not 1 <= self.result_inline_bytes <= RESULT_BYTES_MAX:
            raise ValueError(f"result_inline_bytes must be from 1 to {RESULT_BYTES_MAX}.")

    @property
    def of_states(self) -> Mapping[str, float]:
        """Seconds in each state, as they are announced to `surefoot.stuck_runs`."""
        return {
            "queued_s_max": self.queued_s_max,
            "running_s_max": self.running_s_max,
            "waiting_s_max": self.waiting_s_max,
            "held_s_max": self.held_s_max,
            "cancelling_s_max": self.cancelling_s_max,
        }


class Prompt(Protocol[I_contra]):
    def __call__(self, request: I_contra, /) -> str: ...


@dataclass(frozen=True, slots=True)
class DurableAgent(Generic[D]):
    """A named, versioned agent made durable. Made by `durable(...)`."""

    name: str
    version: str
    agent: Agent[D, Any]
    specs: Mapping[str, Spec]
    deps: Callable[[Run], D | Awaitable[D]]
    input: TypeAdapter[Any]
    prompt: Callable[[Any], str]
    check: Callable[[Any], None] | None
    tables: Tables | str | None
    limits: RunLimits
    states: StateVersions
    keeps_approvals_of: frozenset[str]

    async def make_deps(self, run: Run) -> D:
        """Deps for one execution, made from the run alone."""
        made = self.deps(run)
        return await made if inspect.isawaitable(made) else cast(D, made)

    @property
    def undo_ways(self) -> Mapping[str, Way]:
        """How the effects of each tool that names an undo are undone."""
        return {name: spec.undo.way for name, spec in self.specs.items() if spec.undo is not None}

    def parse_input(self, value: object) -> JsonValue:
        """The input in its canonical JSON form. Raises InvalidInput with what is wrong with it."""
        try:
            canonical_json(cast(JsonValue, value))
        except TypeError:
            pass  # a program's own objects: the type of the input knows them
        except ValueError as error:  # which that type might take for null
            raise InvalidInput(
                f"The input of {self.name} is not JSON ({error}): correct it and start again."
            ) from error
        try:
            request = self.input.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "input"
            raise InvalidInput(
                f"The input of {self.name} is not right: {where}: {first['msg']}. Correct it and start again."
            ) from error
        if self.check is not None:
            try:
                self.check(request)
            except ValueError as error:
                raise InvalidInput(str(error)) from error
        return cast(JsonValue, self.input.dump_python(request, mode="json"))

    def prompt_for(self, value: JsonValue) -> str:
        """What the model is asked, from a run's recorded input."""
        return self.prompt(self.input.validate_python(value))


def _words(request: object) -> str:
    return request if isinstance(request, str) else to_json(request).decode()


def durable(
    agent: Agent[D, Any],
    *,
    version: str,
    deps: Callable[[Run], D | Awaitable[D]],
    input: type[I] = str,
    prompt: Prompt[I] | None = None,
    check: Callable[[I], None] | None = None,
    tables: Tables | str | None = None,
    limits: RunLimits | None = None,
    state_version: int = 1,
    reads: Iterable[int] = (),
    migrate: Mapping[int, Migration] | None = None,
    keeps_approvals_of: Iterable[str] = (),
) -> DurableAgent[D]:
    """Make a pydantic-ai agent durable.

    deps: makes the deps for one execution from the run alone; called in any process, at any time, so it keeps nothing.
    input, prompt: the type a run is started with, and the words the model gets for it: by default the
    text itself, or JSON. check: raises ValueError for an
    input that cannot succeed, before the run starts. tables: a SQLAlchemy MetaData or DDL text that `migrate` creates.

    state_version: the version of the state that its runs have from now on. Raise it when runs that began before cannot
    simply be carried on; reads: versions that can all the same, as they are; migrate: by version, a function that
    rewrites a run's record for the next version. A run of any other version is left to workers that can read it.

    keeps_approvals_of: versions of this agent whose approved calls this one does just so: what people approved of them,
    or still approve, stands. Without it they are asked about such calls anew.
    Raises ToolError when the agent cannot be made safe, with what to change.
    """
    if not agent.name:
        raise ToolError("Give the agent a name: Agent(..., name='...'). Runs are recorded under it.")
    if not version:
        raise ToolError(f"Agent {agent.name}: give a version, such as durable(agent, version='1', ...).")
    if BaseDurabilityCapability.from_agent(agent) is not None:
        raise ToolError(
            f"Agent {agent.name} brings another durability capability: remove it, Surefoot is the engine here."
        )
    return DurableAgent(
        name=agent.name,
        version=version,
        agent=agent,
        specs=MappingProxyType(_specs(agent)),
        deps=deps,
        input=TypeAdapter(input),
        prompt=prompt or _words,
        check=check,
        tables=tables,
        limits=limits or RunLimits(),
        states=StateVersions.of(agent.name, state_version, reads, migrate or {}),
        keeps_approvals_of=_versions(agent.name, keeps_approvals_of),
    )


def _versions(agent: str, versions: Iterable[str]) -> frozenset[str]:
    if isinstance(versions, str):
        raise ToolError(f"Agent {agent}: keeps_approvals_of is several versions: write ({versions!r},).")
    return frozenset(versions)


def _specs(agent: Agent[Any, Any]) -> dict[str, Spec]:
    """Every declared tool by name. Raises ToolError for a plain function tool, with the line to write."""
    specs: dict[str, Spec] = {}

    def visit(leaf: AbstractToolset[Any]) -> None:
        if isinstance(leaf, Tools):
            for name, spec in leaf.specs.items():
                if name in specs:
                    raise ToolError(f"Agent {agent.name}: two tools are called {name}: rename one.")
                specs[name] = spec
        elif isinstance(leaf, FunctionToolset):
            for name in leaf.tools:
                raise ToolError(
                    f"Agent {agent.name}: tool {name} is a plain function: may it run twice? "
                    f"Declare its kind on `tools = Tools[Deps](id='...')`: write `@tools.read` above `{name}` if it "
                    "only reads, `@tools.transaction` if it writes here, `@tools.effect(...)` if it acts outside."
                )

    for toolset in agent.toolsets:
        toolset.apply(visit)
    for name, spec in specs.items():
        unknown = set(spec.requires.tools) - _with_actions(specs) if isinstance(spec.requires, After) else ()
        if unknown:
            raise ToolError(
                f"Agent {agent.name}: {name} requires {', '.join(sorted(unknown))} before it, which is no transaction "
                "or effect of this agent: correct the name in after(...)."
            )
    return specs


def _with_actions(specs: Mapping[str, Spec]) -> set[str]:
    return {name for name, spec in specs.items() if spec.kind != "read" and not spec.undoes}
