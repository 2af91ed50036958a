"""An agent of nine turns and two effects, whose model takes a moment for each: what the fleet's runs are.

Its services: ROUNDS_TICKETS_URL, which honours keys, and ROUNDS_PUBLISHING_URL, which can be searched.
"""

import asyncio
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from steps import Absent, Action, Found, HttpApi, RunLimits, Tools, durable, turns_so_far
from transactions import Run, Tx

TABLES = """
create schema if not exists rounds;
create table if not exists rounds.notes (
    note bigint generated always as identity primary key, text text not null, run_id text not null
);
"""
THINKS_S = 0.15
CALL_S = 2.0
ATTEMPT_S = 3.0  # one and a half times that: nothing of an attempt arrives after it
SEGMENT_TURNS_MAX = 4
# The calls of each turn: a tool, and what it is given, if anything, under this name. A read has a turn of its own:
# beside a write it may see it or not, and after a kill it is asked again when that is there.
TURNS = (
    (("count_notes", None),),
    (("write_note", ("text", "one")),),
    (("open_ticket", ("subject", "the lamp is broken")),),
    (("write_note", ("text", "two")), ("write_note", ("text", "three"))),
    (("count_notes", None),),
    (("publish", ("title", "lamp")),),
    (("count_notes", None),),
    (("write_note", ("text", "four")),),
)


class Round(BaseModel):
    """`number` tells the runs apart."""

    number: int


@dataclass(frozen=True, slots=True)
class Deps:
    tickets: HttpApi
    publishing: HttpApi
    run: Run


def make_deps(run: Run) -> Deps:
    def api(variable: str) -> HttpApi:
        return HttpApi(os.environ.get(variable, "http://127.0.0.1:9"), timeout_s=CALL_S)

    return Deps(api("ROUNDS_TICKETS_URL"), api("ROUNDS_PUBLISHING_URL"), run)


async def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    """The next response; the last one says what the model was answered."""
    await asyncio.sleep(THINKS_S)
    turn = turns_so_far(messages)
    if turn < len(TURNS):
        return ModelResponse(parts=[ToolCallPart(tool, dict([given] if given else ())) for tool, given in TURNS[turn]])
    return ModelResponse(parts=[TextPart(json.dumps(_told(messages)))])


def _told(messages: list[ModelMessage]) -> list[list[str]]:
    """Tool, outcome and answer of every call, in order, without numbers that services draw."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    returned = [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]
    drawn = ("open_ticket", "publish")
    return [[part.tool_name, part.outcome, "" if part.tool_name in drawn else str(part.content)] for part in returned]


tools = Tools[Deps](id="rounds")


@tools.read
async def count_notes(ctx: RunContext[Deps]) -> int:
    """How many notes this run has written."""
    run = ctx.deps.run
    rows = await run.query("select count(*) as notes from rounds.notes where run_id = :run_id", run_id=run.run_id)
    return int(rows[0]["notes"])


@tools.transaction
async def write_note(tx: Tx[Deps], text: str) -> str:
    """Write a note."""
    await tx.execute("insert into rounds.notes (text, run_id) values (:text, :run_id)", text=text, run_id=tx.run.run_id)
    return text


@tools.effect(idempotent=True, attempt_s=ATTEMPT_S)
async def open_ticket(action: Action[Deps], subject: str) -> int:
    """Open a ticket at a desk that honours keys."""
    body: dict[str, JsonValue] = {"customer": str(action.run.run_id), "subject": subject}
    answer: Any = (await action.deps.tickets.call("POST", "/tickets", action=action, json=body)).body
    return int(answer["id"])


async def published(action: Action[Deps], title: str) -> Found[int] | Absent:  # noqa: ARG001
    """The service can be searched for our reference."""
    answer = await action.deps.publishing.call("GET", "/publications", params={"reference": action.id})
    found: Any = answer.body
    return Found(min(int(one["id"]) for one in found)) if found else Absent()


@tools.effect(verify=published, attempt_s=ATTEMPT_S)
async def publish(action: Action[Deps], title: str) -> int:
    """Publish it where keys are not honoured."""
    sha256 = hashlib.sha256(title.encode()).hexdigest()
    body: dict[str, JsonValue] = {"reference": str(action.id), "title": title, "body": title, "sha256": sha256}
    answer: Any = (await action.deps.publishing.call("POST", "/publications", json=body)).body
    return int(answer["id"])


rounds = durable(
    Agent(FunctionModel(says, model_name="script"), name="rounds", deps_type=Deps, toolsets=[tools]),
    version="1",
    deps=make_deps,
    input=Round,
    prompt=lambda asked: asked.model_dump_json(),
    tables=TABLES,
    limits=RunLimits(segment_turns_max=SEGMENT_TURNS_MAX),
)
