"""Which states of runs a version carries on, and what is said of a declaration that cannot be."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRequest
from pydantic_ai.messages import ModelMessagesTypeAdapter, UserPromptPart
from pydantic_ai.models.test import TestModel

from app.serving import application_version, serves, serving
from steps import RunRecord, ToolError, durable
from steps.state import StateVersions
from tests.agents.scripted import AGENTS
from transactions.readers import Record


def adds(word: str) -> Any:
    def migrate(record: RunRecord) -> RunRecord:
        messages = [replace(message, instructions=word) for message in record.messages]
        return RunRecord(f"{record.input} {word}", messages)

    return migrate


def test_a_record_is_taken_from_number_to_number_until_it_can_be_read() -> None:
    states = StateVersions.of("shop", 4, (3,), {1: adds("one"), 2: adds("two")})
    assert (states.as_is, states.migrated, states.reads) == ({3, 4}, {1, 2}, {1, 2, 3, 4})
    request = ModelRequest(parts=[UserPromptPart("go")])
    told = ModelMessagesTypeAdapter.dump_python([request], mode="json")
    found = states.migrate(1, Record("given", told))
    assert found.input == "given one two"
    assert [message["instructions"] for message in found.messages] == ["two"]  # type: ignore[index, call-overload]
    assert states.migrate(3, Record("given", told)) == Record("given", told)


@pytest.mark.parametrize(
    ("writes", "reads", "migrate", "words"),
    [
        (0, (), {}, r"Agent shop: state versions are whole numbers from 1 on, and not \[0\]\."),
        (1, (-1,), {}, r"from 1 on, and not \[-1, 1\]\."),
        (2, (1,), {1: adds("x")}, "state 1 is read as it is, and migrated too: take it out of one of both"),
        (2, (), {2: adds("x")}, "state 2 is read as it is, and migrated too"),
        (3, (), {1: adds("x")}, r"migrate\[1\] makes a record of state 2, which nothing reads or migrates on"),
        (2, (), {5: adds("x")}, r"migrate\[5\] makes a record of state 6"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_declared(
    writes: int, reads: Collection[int], migrate: Mapping[int, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        durable(
            Agent(TestModel(), name="shop"),
            version="1",
            deps=lambda run: None,
            state_version=writes,
            reads=reads,
            migrate=migrate,
        )


def test_an_application_version_is_its_agents_and_the_build() -> None:
    assert application_version(AGENTS, None) == "hasty=1 scripted=1"
    assert application_version(AGENTS, "3f2a9c1") == "hasty=1 scripted=1 @3f2a9c1"
    assert application_version([], None) == "none"


def test_what_is_announced_is_what_is_served() -> None:
    agents = {agent.name: agent for agent in AGENTS}
    served = serving(agents, "v")
    assert {one.agent: one.reads for one in serves(agents)} == {"scripted": {1}, "hasty": {1}}
    assert "send effect" in served.agents["scripted"].tools
    assert "note transaction" in served.agents["scripted"].tools
    assert not any(tool.startswith("look ") for tool in served.agents["scripted"].tools)
