"""Find the agents to serve: the entry points `surefoot.agents`, and `SUREFOOT_AGENTS=module:ATTR,...`."""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from steps import DurableAgent, ToolError
from transactions import InvalidInput, SurefootError

GROUP = "surefoot.agents"


class AgentNotLoaded(SurefootError):
    """An agent failed to load. The start stops with its name."""


def load_agents(named: str | None) -> list[DurableAgent[Any]]:
    """Every agent, loaded to a value before anything is launched. Raises AgentNotLoaded, InvalidInput."""
    agents: list[DurableAgent[Any]] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        agents += _values(f"{entry.name} ({entry.value})", entry.load)
    for reference in filter(None, (part.strip() for part in (named or "").split(","))):
        module, _, attribute = reference.partition(":")
        if not module or not attribute:
            raise InvalidInput(f"SUREFOOT_AGENTS names {reference!r}: write module:ATTRIBUTE.")
        agents += _values(reference, lambda m=module, a=attribute: getattr(import_module(m), a))
    return unique(agents)


def unique(agents: Sequence[DurableAgent[Any]]) -> list[DurableAgent[Any]]:
    """The agents, each once. Raises InvalidInput when two different ones have the same name."""
    by_name: dict[str, DurableAgent[Any]] = {}
    for agent in agents:
        if by_name.setdefault(agent.name, agent) is not agent:
            raise InvalidInput(f"Two agents are called {agent.name!r}: rename one.")
    return list(by_name.values())


def _values(name: str, load: Any) -> list[DurableAgent[Any]]:
    try:
        value = load()
    except (SurefootError, ToolError) as error:  # says itself what to do
        raise AgentNotLoaded(f"Agent {name} failed to load: {error}") from error
    except (Exception, SystemExit) as error:
        raise AgentNotLoaded(
            f"Agent {name} failed to load: {type(error).__name__}: {error}. Correct it and start again."
        ) from error
    values = list(cast("list[object]", value)) if isinstance(value, list | tuple) else [value]
    for one in values:
        if not isinstance(one, DurableAgent):
            raise AgentNotLoaded(
                f"Agent {name} is a {type(one).__name__}: make it `durable(agent, version=..., deps=...)`."
            )
    return cast("list[DurableAgent[Any]]", values)
