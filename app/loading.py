"""Find the agents to serve and the consumers to deliver to: entry points, and `module:ATTR,...` of a variable."""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from outbox import Subscription, unique_subscriptions
from steps import DurableAgent, ToolError
from transactions import InvalidInput, SurefootError

GROUP = "surefoot.agents"
CONSUMERS_GROUP = "surefoot.consumers"


class AgentNotLoaded(SurefootError):
    """An agent failed to load. The start stops with its name."""


class ConsumerNotLoaded(SurefootError):
    """A consumer failed to load. The start stops with its name."""


def load_agents(named: str | None) -> list[DurableAgent[Any]]:
    """Every agent of `surefoot.agents` and SUREFOOT_AGENTS, loaded to a value before anything is launched.

    Raises AgentNotLoaded, InvalidInput.
    """
    agents: list[DurableAgent[Any]] = []
    for name, load in _references(GROUP, "SUREFOOT_AGENTS", named):
        for one in _values("Agent", name, load, AgentNotLoaded):
            if not isinstance(one, DurableAgent):
                raise AgentNotLoaded(
                    f"Agent {name} is a {type(one).__name__}: make it `durable(agent, version=..., deps=...)`."
                )
            agents.append(cast("DurableAgent[Any]", one))
    return unique(agents)


def load_subscriptions(named: str | None) -> list[Subscription]:
    """Every subscription of `surefoot.consumers` and SUREFOOT_CONSUMERS, loaded to a value before anything is launched.

    Raises ConsumerNotLoaded, InvalidInput.
    """
    subscriptions: list[Subscription] = []
    for name, load in _references(CONSUMERS_GROUP, "SUREFOOT_CONSUMERS", named):
        for one in _values("Consumer", name, load, ConsumerNotLoaded):
            if not isinstance(one, Subscription):
                raise ConsumerNotLoaded(
                    f"Consumer {name} is a {type(one).__name__}: make it `Subscription(name, consumer, topics=[...])`."
                )
            subscriptions.append(one)
    return unique_subscriptions(subscriptions)


def unique(agents: Sequence[DurableAgent[Any]]) -> list[DurableAgent[Any]]:
    """The agents, each once. Raises InvalidInput when two different ones have the same name."""
    by_name: dict[str, DurableAgent[Any]] = {}
    for agent in agents:
        if by_name.setdefault(agent.name, agent) is not agent:
            raise InvalidInput(f"Two agents are called {agent.name!r}: rename one.")
    return list(by_name.values())


def _references(group: str, variable: str, named: str | None) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is installed, and then what the variable names: how to call it in a message, and how to load it."""
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        yield f"{entry.name} ({entry.value})", entry.load
    for reference in filter(None, (part.strip() for part in (named or "").split(","))):
        module, _, attribute = reference.partition(":")
        if not module or not attribute:
            raise InvalidInput(f"{variable} names {reference!r}: write module:ATTRIBUTE.")
        yield reference, lambda m=module, a=attribute: getattr(_module(m), a)


def _module(name: str) -> ModuleType:
    """Found in the folder that the command was started in, too: a single file needs no installation."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return import_module(name)


def _values(
    kind: str, name: str, load: Callable[[], object], failed: Callable[[str], SurefootError]
) -> Sequence[object]:
    """One value, or those of a list or tuple."""
    try:
        value = load()
    except (SurefootError, ToolError) as error:  # says itself what to do
        raise failed(f"{kind} {name} failed to load: {error}") from error
    except (Exception, SystemExit) as error:
        raise failed(
            f"{kind} {name} failed to load: {type(error).__name__}: {error}. Correct it and start again."
        ) from error
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else [value]
