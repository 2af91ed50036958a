"""A transaction that took too long is done again a few times: it may have been the machine, and not the tool."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from app.crashtest.plugin import Rehearsal
from app.crashtest.rehearsal import Finished
from steps import Tools, durable, turns_so_far
from steps.calls import TRANSACTION_TRIES
from transactions import Limits, Run, Tx

LIMIT_S = 0.2
SLOW_S = 3 * LIMIT_S
TABLES = "create schema if not exists slow; create table if not exists slow.rows (text text not null);"


@pytest.mark.parametrize("slow_tries", [TRANSACTION_TRIES - 1, TRANSACTION_TRIES])
def test_it_writes_once_or_the_run_says_what_to_do(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch, slow_tries: int
) -> None:
    monkeypatch.setattr(Limits, "within", lambda self, lease_s: replace(self, transaction_s=LIMIT_S))
    tried: list[str] = []
    tools = Tools[None](id="slow")

    @tools.transaction
    async def write(tx: Tx[None], text: str) -> None:
        tried.append(text)
        await tx.execute("insert into slow.rows (text) values (:text)", text=text)
        if len(tried) <= slow_tries:
            await asyncio.sleep(3600)

    finished, written = run_of(rehearsal, tools)
    assert len(tried) == TRANSACTION_TRIES
    if slow_tries < TRANSACTION_TRIES:
        assert (finished.state, written) == ("completed", [{"text": "a"}])
    else:
        assert (finished.state, written) == ("failed", [])
        assert "do slow work in `before=`" in str(finished.reason)


def test_what_is_done_before_it_may_take_longer(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "within", lambda self, lease_s: replace(self, transaction_s=LIMIT_S))
    made: list[str] = []
    tools = Tools[None](id="slow")

    async def slowly(deps: None, text: str, times: int = 2) -> None:
        await asyncio.sleep(SLOW_S)
        made.append(text * times)

    @tools.transaction(before=slowly)
    async def write(tx: Tx[None], text: str, times: int = 2) -> None:
        await tx.execute("insert into slow.rows (text) values (:text)", text=made[-1])

    finished, written = run_of(rehearsal, tools)
    assert (finished.state, written, made) == ("completed", [{"text": "aa"}], ["aa"])


def test_what_it_raises_is_told_to_the_model_and_nothing_is_written(rehearsal: Rehearsal) -> None:
    tools = Tools[None](id="slow")

    async def look(deps: None, text: str) -> None:
        raise ToolFailed("nothing to write about")

    @tools.transaction(before=look)
    async def write(tx: Tx[None], text: str) -> None:
        await tx.execute("insert into slow.rows (text) values (:text)", text=text)

    finished, written = run_of(rehearsal, tools)
    assert (finished.state, written) == ("completed", [])


def run_of(rehearsal: Rehearsal, tools: Tools[None]) -> tuple[Finished, Sequence[Mapping[str, object]]]:
    """A run that writes "a" once, and the rows that it left."""

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = TextPart("done") if turns_so_far(messages) else ToolCallPart("write", {"text": "a"})
        return ModelResponse(parts=[part])

    def deps(run: Run) -> None:
        return None

    agent = Agent(FunctionModel(says, model_name="script"), name="slow", deps_type=type(None), toolsets=[tools])
    stage = rehearsal(durable(agent, version="1", deps=deps, tables=TABLES))
    stage.start("write it down")
    return stage.finish(), stage.rows("select text from slow.rows")
