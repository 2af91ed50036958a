"""`Surefoot.start` and the statements behind it, for an agent that takes anything: limits, what cannot be stored."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from app import Surefoot
from steps import Tools, durable
from tests.bad_input.sentences import rows
from transactions import InvalidInput, NotFound, Run, UnknownAgent

INPUT_BYTES_MAX = 1024 * 1024
UNSTORABLE = r"^A text contains a NUL character or half of a surrogate pair, which Postgres cannot store: remove it\.$"


def no_deps(run: Run) -> None:
    return None


echo = durable(
    Agent(TestModel(), name="echo", deps_type=type(None), toolsets=[Tools[None](id="echo")]),
    version="1",
    deps=no_deps,
    input=Any,
    prompt=str,
)


@pytest.fixture
async def surefoot(nothing_started: str) -> AsyncIterator[Surefoot]:
    surefoot = Surefoot(nothing_started, [echo])
    yield surefoot
    await surefoot.close()


async def test_an_input_over_its_limit_is_refused(surefoot: Surefoot) -> None:
    with pytest.raises(InvalidInput, match=r"^The input is over 1048576 bytes: give a reference to it instead\.$"):
        await surefoot.start("echo", "x" * (INPUT_BYTES_MAX - 1))  # and two quotes around it
    with pytest.raises(InvalidInput, match="over 1048576 bytes"):
        await surefoot.start("echo", "é" * (INPUT_BYTES_MAX // 2))


@pytest.mark.parametrize("value", [[1] * (INPUT_BYTES_MAX // 2 - 1), [1e-300] * 100_000], ids=["spaces", "digits"])
async def test_an_input_that_the_database_writes_longer_is_refused(surefoot: Surefoot, value: list[float]) -> None:
    columns, values = "tenant, name, version, input_schema", "'default', 'echo', '1', '{}'"
    rows(surefoot.database_url, f"insert into surefoot.agents ({columns}) values ({values}) returning 1")
    try:
        with pytest.raises(InvalidInput, match="over 1048576 bytes"):
            await surefoot.start("echo", value)
    finally:
        rows(surefoot.database_url, "delete from surefoot.agents where name = 'echo' returning 1")


@pytest.mark.parametrize("value", ["a\0", {"a\0": 1}, [["\0"]], {"a": {"b": "\0"}}])
async def test_a_nul_character_anywhere_in_the_input_is_refused(surefoot: Surefoot, value: object) -> None:
    with pytest.raises(InvalidInput, match="The input contains a NUL character or half of a surrogate pair"):
        await surefoot.start("echo", value)


async def test_half_of_a_surrogate_pair_is_refused(surefoot: Surefoot) -> None:
    with pytest.raises(InvalidInput):
        await surefoot.start("echo", {"a": "\ud800"})
    with pytest.raises(InvalidInput, match=UNSTORABLE):
        await surefoot.status("\ud800")


@pytest.mark.parametrize("key", ["", "k" * 256, "k\0"])
async def test_a_key_that_cannot_be_one_is_refused(surefoot: Surefoot, key: str) -> None:
    with pytest.raises(InvalidInput):
        await surefoot.start("echo", "hello", key=key)


async def test_an_agent_that_no_worker_has_served_is_refused_by_the_database_too(surefoot: Surefoot) -> None:
    with pytest.raises(UnknownAgent, match="start a worker that serves it, or choose one of:"):
        await surefoot.start("echo", "hello")
    with pytest.raises(UnknownAgent, match=r"^No agent named 'other': choose one of: echo\.$"):
        await surefoot.start("other", "hello")


async def test_what_nobody_has_is_not_found(surefoot: Surefoot) -> None:
    with pytest.raises(NotFound, match="No run nope: see"):
        await surefoot.timeline("nope")
    with pytest.raises(NotFound, match=r"^No artifact 'nope' version 1\.$"):
        await surefoot.artifact("nope", 1)


def test_the_database_itself_refuses_an_input_over_the_limit(nothing_started: str) -> None:
    """Whatever language starts the run."""
    rows(nothing_started, "insert into surefoot.agents (name, version, input_schema) values ('any', '1', '{}') "
                          "on conflict do nothing returning name")  # fmt: skip
    with pytest.raises(Exception, match="runs_input_check"):
        rows(nothing_started, "select surefoot.start_run('any', to_jsonb(repeat('x', 1048576)))")
