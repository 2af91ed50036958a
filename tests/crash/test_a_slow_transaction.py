"""A transaction that took too long is done again a few times: it may have been the machine, and not the tool."""

import asyncio
from dataclasses import replace

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from app.crashtest.plugin import Rehearsal
from steps import Tools, durable, turns_so_far
from steps.calls import TRANSACTION_TRIES
from transactions import Limits, Run, Tx

LIMIT_S = 0.2
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

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = TextPart("done") if turns_so_far(messages) else ToolCallPart("write", {"text": "a"})
        return ModelResponse(parts=[part])

    def deps(run: Run) -> None:
        return None

    agent = Agent(FunctionModel(says, model_name="script"), name="slow", deps_type=type(None), toolsets=[tools])
    stage = rehearsal(durable(agent, version="1", deps=deps, tables=TABLES))
    stage.start("write it down")
    finished = stage.finish()
    written = stage.rows("select text from slow.rows")
    assert len(tried) == TRANSACTION_TRIES
    if slow_tries < TRANSACTION_TRIES:
        assert (finished.state, written) == ("completed", [{"text": "a"}])
    else:
        assert (finished.state, written) == ("failed", [])
        assert "do slow work in a read" in str(finished.reason)
