"""What a process serves: its application version, and its agents as the base knows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from steps import DurableAgent
from transactions.readers import Reader, Serving
from transactions.versions import Serves


def application_version(agents: Sequence[DurableAgent[Any]], build: str | None) -> str:
    """What a recorded history belongs to: the agents and their versions, and the build that the deployment names."""
    named = [f"{agent.name}={agent.version}" for agent in sorted(agents, key=lambda agent: agent.name)] or ["none"]
    return " ".join([*named, f"@{build}"] if build else named)


def serving(agents: Mapping[str, DurableAgent[Any]], version: str) -> Serving:
    """What a segment is begun with."""
    return Serving(version, {name: _reader(agent) for name, agent in agents.items()})


def _reader(agent: DurableAgent[Any]) -> Reader:
    acts = [spec for spec in agent.specs.values() if spec.kind != "read"]
    return Reader(
        agent_version=agent.version,
        turns_max=agent.limits.segment_turns_max,
        writes=agent.states.writes,
        as_is=agent.states.as_is,
        migrated=agent.states.migrated,
        migrate=agent.states.migrate,
        tools=frozenset(f"{spec.name} {spec.action_kind}" for spec in acts),
    )


def serves(agents: Mapping[str, DurableAgent[Any]]) -> list[Serves]:
    """What a worker's start announces."""
    return [
        Serves(
            agent=agent.name,
            agent_version=agent.version,
            state_version=agent.states.writes,
            reads=agent.states.reads,
            tools=frozenset(agent.specs),
            input_schema=agent.input.json_schema(),
            limits=agent.limits.of_states,
        )
        for agent in agents.values()
    ]
