"""An agent for soaks: every kind of row that a run can leave behind, and nothing outside, so that the database is the
load.

What it keeps for itself stays as large as it is: cells that are written over. Its model is a script.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outbox import Delivery, LocalConsumer, Subscription
from steps import Absent, Action, Approval, Found, RunLimits, Tools, durable, turns_so_far
from transactions import ArtifactRef, Run, Session, Tx

TABLES = """
create schema if not exists soak;
create table if not exists soak.cells (cell integer primary key, text text not null, heard bigint not null default 0);
alter table soak.cells set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
"""
CELLS = 200
NAMES = 20  # of artifacts, so that versions replace each other
_LARGE_LINES = 400
_HEARD = "update soak.cells set heard = heard + 1 where cell = %s"

Calls = list[tuple[str, dict[str, Any]]]


class Errand(BaseModel):
    """The number of the run, from which follows what it does."""

    n: int


@dataclass(frozen=True, slots=True)
class Deps:
    run: Run


def turns(n: int) -> list[Calls]:
    """The calls of each response: in every run the first ones, in some of them the rest too."""
    script: list[Calls] = [
        [("look", {"cell": n % CELLS})],
        [("write", {"cell": n % CELLS, "text": f"run {n}"}), ("send", {"text": f"run {n}"})],
        [("save", {"name": f"soak/{n % NAMES}", "text": f"run {n}"})],
        [("share", {"pair": n // 2})],
    ]
    if n % 5 == 0:
        script.append([("list_long", {"lines": _LARGE_LINES})])
    if n % 7 == 0:
        script.append([("agree", {"text": f"run {n}"})])
    if n % 11 == 0:
        script.append([("place", {"text": f"run {n}"})])
    return script


def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    """The next response of the script."""
    assert isinstance(messages[0], ModelRequest)
    prompt = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    script = turns(Errand.model_validate_json(str(prompt.content)).n)
    turn = turns_so_far(messages)
    if turn < len(script):
        return ModelResponse(parts=[ToolCallPart(tool, arguments) for tool, arguments in script[turn]])
    return ModelResponse(parts=[TextPart("done")])


tools = Tools[Deps](id="soak")


@tools.read
async def look(ctx: RunContext[Deps], cell: int) -> str:
    """What is in a cell."""
    rows = await ctx.deps.run.query("select text from soak.cells where cell = :cell", cell=cell)
    return rows[0]["text"] if rows else ""


@tools.read
async def list_long(ctx: RunContext[Deps], lines: int) -> list[str]:  # noqa: ARG001
    """More than fits into a message: it is kept as an artifact."""
    return [hashlib.sha256(str(n).encode()).hexdigest() for n in range(lines)]


@tools.transaction
async def write(tx: Tx[Deps], cell: int, text: str) -> int:
    """Write a cell, and say so to whoever is subscribed."""
    await tx.execute(
        "insert into soak.cells (cell, text) values (:cell, :text)"
        " on conflict (cell) do update set text = excluded.text",
        cell=cell,
        text=text,
    )
    await tx.outbox("soak.written", {"cell": cell}, key=str(cell))
    return cell


@tools.transaction
async def save(tx: Tx[Deps], name: str, text: str) -> ArtifactRef:
    """The next version of an artifact."""
    return await tx.save_artifact(name, (text * 50).encode(), media_type="text/plain")


@tools.effect(idempotent=True)
async def send(action: Action[Deps], text: str) -> str:
    """To a place that answers at once."""
    return _answered(action, text)


def _of_pair(pair: int) -> str:
    return f"pair {pair}"


@tools.effect(idempotent=True, key=_of_pair)
async def share(action: Action[Deps], pair: int) -> str:
    """Once for two runs."""
    return _answered(action, str(pair))


@tools.effect(idempotent=True, approval=Approval[Any, [str]](by="role:manager"))
async def agree(action: Action[Deps], text: str) -> str:
    """Once a manager has agreed."""
    return _answered(action, text)


async def placed(action: Action[Deps], answer: str) -> Found[None] | Absent:  # noqa: ARG001
    """It was not taken back yet."""
    return Absent()


@tools.undo(verify=placed)
async def take_back(action: Action[Deps], answer: str) -> None:
    """Take it back."""


@tools.effect(idempotent=True, undo=take_back)
async def place(action: Action[Deps], text: str) -> str:
    """What can be taken back."""
    return _answered(action, text)


def _answered(action: Action[Deps], text: str) -> str:
    return hashlib.sha256(f"{action.id} {text}".encode()).hexdigest()


async def hear(session: Session, delivery: Delivery) -> None:
    """A consumer in this database."""
    assert isinstance(delivery.payload, dict)
    connection = await session.connection()
    await connection.exec_driver_sql(_HEARD, (delivery.payload["cell"],))


soak = durable(
    Agent(FunctionModel(says, model_name="script"), name="soak", deps_type=Deps, toolsets=[tools]),
    version="1",
    deps=Deps,
    input=Errand,
    prompt=lambda errand: errand.model_dump_json(),
    tables=TABLES,
    limits=RunLimits(segment_turns_max=4, result_inline_bytes=16 * 1024),
)
heard = Subscription("heard", LocalConsumer(hear), topics=["soak.written"])
