"""An agent whose model says what its input says, with one tool of each sort that the guarantees need.

Input: `{"turns": [[["note", {"text": "a"}], ...], ...]}`: the calls of each response in turn; then the model ends with
what it was told, as text. Each model request is one line in the file TEST_MODEL_LOG.
"""

import json
import os
import signal
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outbox import Mail
from steps import Absent, Action, Approval, Found, RunLimits, Tools, after, durable, turns_so_far
from transactions import ArtifactRef, Run, Tx

TABLES = """
create schema if not exists scripted;
create table if not exists scripted.notes (
    note bigint generated always as identity primary key, text text not null, run_id text not null
);
create table if not exists scripted.doors (door text primary key, is_open boolean not null);
create table if not exists scripted.drafts (name text primary key, text text not null);
"""
# Short, so that a verdict of "absent" is soon believed.
ATTEMPT_S = 3.0
# In the arguments of a call: the name of the artifact that the model was shown last.
ARTIFACT = "$artifact"
# What was made before a transaction, by run.
THOUGHTS: dict[str, str] = {}
TRIFLE = 3.0
MANAGER = Approval[Any, [str]](by="role:manager", expires=timedelta(days=3))


class Script(BaseModel):
    turns: list[list[tuple[str, dict[str, Any]]]]


@dataclass
class Deps:
    outside: str
    run: Run


def make_deps(run: Run) -> Deps:
    return Deps(os.environ.get("TEST_OUTSIDE_URL", ""), run)


def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The next response of the script."""
    turn = turns_so_far(messages)
    if log := os.environ.get("TEST_MODEL_LOG"):
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()} {turn}\n")
    assert isinstance(messages[0], ModelRequest)
    prompt = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    script = Script.model_validate_json(str(prompt.content))
    if turn < len(script.turns):
        seen = _artifact(messages)
        calls = [
            (tool, {k: seen if v == ARTIFACT else v for k, v in given.items()}) for tool, given in script.turns[turn]
        ]
        return ModelResponse(parts=[ToolCallPart(tool, arguments) for tool, arguments in calls])
    return ModelResponse(parts=[TextPart(json.dumps(told(messages)))])


def _artifact(messages: list[ModelMessage]) -> str:
    """The name in the last small value that stood for a large result."""
    returned = [p for m in messages if isinstance(m, ModelRequest) for p in m.parts if isinstance(p, ToolReturnPart)]
    names = [part.content["artifact"] for part in returned if isinstance(part.content, dict) and "head" in part.content]
    return names[-1] if names else ""


def told(messages: list[ModelMessage]) -> list[list[str]]:
    """Tool, outcome and content of everything the model was answered, in order."""
    answers: list[list[str]] = []
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else []:
            if isinstance(part, ToolReturnPart):
                answers.append([part.tool_name, part.outcome, str(part.content)])
            elif isinstance(part, RetryPromptPart):
                answers.append([part.tool_name or "", "retry", str(part.content)])
    return answers


tools = Tools[Deps](id="scripted")


@tools.read
async def look(ctx: RunContext[Deps], text: str) -> str:
    """Say it back."""
    return f"saw {text}"


@tools.read
async def look_long(ctx: RunContext[Deps], lines: int) -> str:
    """So many numbered lines, of which each time one is another."""
    return "\n".join(f"line {n}" for n in range(lines)) + f"\nread by {os.getpid()}"


@tools.read
async def look_huge(ctx: RunContext[Deps], mebibytes: int) -> str:
    """Far more than a message, or an artifact, may have."""
    return "x" * (mebibytes * 1024 * 1024)


@tools.read
async def whole(ctx: RunContext[Deps], number: int) -> int:
    """A number that must not be below zero."""
    if number < 0:
        raise ModelRetry(f"{number} is below zero: give another")
    return number


@tools.read
async def poison(ctx: RunContext[Deps]) -> str:
    """Kills its process, always."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tools.transaction
async def note(tx: Tx[Deps], text: str) -> int:
    """Write a note. Its number is the database's."""
    return await _note(tx, text)


@tools.transaction
async def lined_note(tx: Tx[Deps], text: str, lines: int) -> list[str]:
    """Write a note, and answer with so many lines."""
    number = await _note(tx, text)
    return [f"note {number} line {n}" for n in range(lines)]


@tools.transaction
async def save(tx: Tx[Deps], name: str, text: str) -> ArtifactRef:
    """Save an artifact."""
    return await tx.save_artifact(name, text.encode(), media_type="text/plain")


@tools.transaction
async def picky_note(tx: Tx[Deps], text: str) -> int:
    """Write a note that has no exclamation mark."""
    number = await _note(tx, text)
    if "!" in text:
        raise ModelRetry("write it without an exclamation mark")
    return number


@tools.transaction
async def long_note(tx: Tx[Deps], text: str) -> int:
    """Write a note, and wait for the outside before it is committed."""
    number = await _note(tx, text)
    await _post(tx.deps, f"{tx.action_id}?", text)
    return number


@tools.transaction(approval=MANAGER)
async def gated_note(tx: Tx[Deps], text: str) -> int:
    """Write a note, once a manager has agreed."""
    return await _note(tx, text)


def is_no_trifle(tx: Tx[Deps], amount: float) -> bool:
    return amount != TRIFLE


@tools.transaction(approval=Approval(by="role:manager", when=is_no_trifle, policy="no trifle"))
async def gated_amount(tx: Tx[Deps], amount: float) -> int:
    """Write down a number, once a manager has agreed."""
    return await _note(tx, str(amount))


async def thought_over(deps: Deps, text: str) -> None:
    if text == "unthinkable":
        raise ValueError(text)
    THOUGHTS[deps.run.run_id] = f"{text}, thought over"


@tools.transaction(approval=MANAGER, before=thought_over)
async def gated_note_thought_over(tx: Tx[Deps], text: str) -> int:
    """Write what was made of it before, once a manager has agreed."""
    return await _note(tx, THOUGHTS[tx.run.run_id])


@tools.transaction
async def tell(tx: Tx[Deps], text: str) -> str:
    """Mail the team."""
    return await tx.outbox("mail", Mail(to=["team@example.org"], subject=text, body=text))


async def sent(action: Action[Deps], text: str) -> Found[int] | Absent:
    """The outside can be searched by our reference."""
    async with _client(action.deps) as client:
        answer = await client.get("/things", params={"reference": action.id})
        things = answer.raise_for_status().json()
    return Found(things[0]["number"]) if things else Absent()


@tools.effect(verify=sent, attempt_s=ATTEMPT_S)
async def send(action: Action[Deps], text: str) -> int:
    """Send it to the outside."""
    return await _post(action.deps, action.id, text)


@tools.effect(at_most_once=True, attempt_s=ATTEMPT_S)
async def send_blindly(action: Action[Deps], text: str) -> int:
    """Send it to the outside, as if that could not be searched."""
    return await _post(action.deps, action.id, text)


@tools.effect(at_most_once=True, attempt_s=ATTEMPT_S, approval=MANAGER)
async def gated_send_blindly(action: Action[Deps], text: str) -> int:
    """The same, once a manager has agreed."""
    return await _post(action.deps, action.id, text)


@tools.effect(verify=sent, attempt_s=60.0)
async def send_patiently(action: Action[Deps], text: str) -> int:
    """Send it to an outside that may take long."""
    return await _post(action.deps, action.id, text)


@tools.effect(verify=sent, approval=MANAGER, attempt_s=ATTEMPT_S)
async def gated_send(action: Action[Deps], text: str) -> int:
    """Send it to the outside, once a manager has agreed."""
    return await _post(action.deps, action.id, text)


@tools.effect(
    verify=sent, approval=Approval(by="role:manager", expires=timedelta(milliseconds=300)), attempt_s=ATTEMPT_S
)
async def briefly_gated_send(action: Action[Deps], text: str) -> int:
    """Send it to the outside, if a manager agrees at once."""
    return await _post(action.deps, action.id, text)


@tools.effect(verify=sent, attempt_s=ATTEMPT_S, requires=after("note"), phase="Sending")
async def send_after_note(action: Action[Deps], text: str) -> int:
    """Send it to the outside, once this run has written a note."""
    return await _post(action.deps, action.id, text)


@tools.effect(verify=sent, attempt_s=ATTEMPT_S, approval=MANAGER, requires=after("note"))
async def gated_send_after_note(action: Action[Deps], text: str) -> int:
    """The same, once a manager has agreed."""
    return await _post(action.deps, action.id, text)


async def draft(tx: Tx[Deps], name: str) -> dict[str, str]:
    """What is to be sent under this name, as it is now."""
    [row] = await tx.execute("select text from scripted.drafts where name = :name", name=name)
    return {"name": name, "text": row["text"]}


async def redrafted(tx: Tx[Deps], change: JsonValue, name: str) -> dict[str, JsonValue]:
    """The approver's own words, kept under a name of their own."""
    await tx.execute("insert into scripted.drafts values (:name, :text)", name=f"{name}, edited", text=str(change))
    return {"name": f"{name}, edited"}


async def draft_sent(action: Action[Deps], name: str) -> Found[int] | Absent:
    return await sent(action, name)


@tools.effect(verify=draft_sent, attempt_s=ATTEMPT_S, approval=Approval(by="role:manager", binds=draft, edit=redrafted))
async def gated_send_draft(action: Action[Deps], name: str) -> int:
    """Send what is under this name to the outside, as a manager has approved it."""
    return await _post(action.deps, action.id, str(action.bound["text"]))


@tools.effect(verify=sent, attempt_s=ATTEMPT_S, approval=Approval(by="role:manager", people_min=2, not_requester=True))
async def twice_gated_send(action: Action[Deps], text: str) -> int:
    """Send it to the outside, once two managers have agreed who have not asked for it."""
    return await _post(action.deps, action.id, text)


async def door_is_open(tx: Tx[Deps], text: str) -> str | None:
    rows = await tx.execute("select 1 from scripted.doors where door = 'front' and is_open for share")
    return None if rows else f"{text} does not go out: the door is shut"


@tools.transaction(requires=door_is_open)
async def note_at_open_door(tx: Tx[Deps], text: str) -> int:
    """Write a note while the door is open."""
    return await _note(tx, text)


@tools.effect(verify=sent, attempt_s=ATTEMPT_S, approval=MANAGER, requires=door_is_open)
async def gated_send_at_open_door(action: Action[Deps], text: str) -> int:
    """Send it to the outside, while the door is open and a manager has agreed."""
    return await _post(action.deps, action.id, text)


def by_name(text: str, name: str) -> str:
    return name


@tools.transaction(key=by_name)
async def named_note(tx: Tx[Deps], text: str, name: str) -> int:
    """Write the note of this name, once for all runs."""
    return await _note(tx, text)


async def sent_by_name(action: Action[Deps], text: str, name: str) -> Found[int] | Absent:
    return await sent(action, text)


@tools.effect(verify=sent_by_name, attempt_s=ATTEMPT_S, key=by_name)
async def named_send(action: Action[Deps], text: str, name: str) -> int:
    """Send what has this name to the outside, once for all runs."""
    return await _post(action.deps, action.id, text)


@tools.effect(at_most_once=True, attempt_s=ATTEMPT_S, key=by_name)
async def named_send_blindly(action: Action[Deps], text: str, name: str) -> int:
    """The same, as if the outside could not be searched."""
    return await _post(action.deps, action.id, text)


@tools.effect(
    verify=sent_by_name, approval=Approval[Any, [str, str]](by="role:manager"), attempt_s=ATTEMPT_S, key=by_name
)
async def gated_named_send(action: Action[Deps], text: str, name: str) -> int:
    """The same, once a manager has agreed."""
    return await _post(action.deps, action.id, text)


async def taken_back(action: Action[Deps], number: int) -> Found[None] | Absent:
    found = await sent(action, "")
    return Absent() if isinstance(found, Absent) else Found(None)


async def taken_back_long(action: Action[Deps], done: list[str]) -> Found[None] | Absent:
    found = await sent(action, "")
    return Absent() if isinstance(found, Absent) else Found(None)


@tools.undo(verify=taken_back, attempt_s=ATTEMPT_S)
async def take_back(action: Action[Deps], number: int) -> None:
    """Take back what was placed outside under this number."""
    await _post(action.deps, action.id, f"take back {number}")


@tools.effect(verify=sent, attempt_s=ATTEMPT_S, undo=take_back)
async def place(action: Action[Deps], text: str) -> int:
    """Place something outside that can be taken back."""
    return await _post(action.deps, action.id, text)


async def placed_long(action: Action[Deps], text: str, lines: int) -> Found[list[str]] | Absent:
    found = await sent(action, text)
    return Absent() if isinstance(found, Absent) else Found(_lines(found.result, lines))


def _lines(number: int, lines: int) -> list[str]:
    return [f"thing {number} line {n}" for n in range(lines)]


@tools.undo(verify=taken_back_long, attempt_s=ATTEMPT_S)
async def take_back_long(action: Action[Deps], done: list[str]) -> None:
    """Take back what was placed outside with these lines."""
    await _post(action.deps, action.id, f"take back {len(done)} lines to {done[-1]}")


@tools.effect(verify=placed_long, attempt_s=ATTEMPT_S, undo=take_back_long)
async def place_long(action: Action[Deps], text: str, lines: int) -> list[str]:
    """Place something outside that answers with so many lines."""
    return _lines(await _post(action.deps, action.id, text), lines)


@tools.undo(at_most_once=True, attempt_s=ATTEMPT_S)
async def take_back_blindly(action: Action[Deps], number: int) -> None:
    """The same, as if the outside could not be searched."""
    await _post(action.deps, action.id, f"take back {number}")


@tools.effect(verify=sent, attempt_s=ATTEMPT_S, undo=take_back_blindly)
async def place_for_good(action: Action[Deps], text: str) -> int:
    """Place something outside, and nobody can tell later whether it was taken back."""
    return await _post(action.deps, action.id, text)


async def _note(tx: Tx[Deps], text: str) -> int:
    rows = await tx.execute(
        "insert into scripted.notes (text, run_id) values (:text, :run_id) returning note",
        text=text,
        run_id=tx.run.run_id,
    )
    return int(rows[0]["note"])


async def _post(deps: Deps, reference: str, text: str) -> int:
    async with _client(deps) as client:
        answer = await client.post("/things", json={"reference": reference, "text": text})
        return int(answer.raise_for_status().json()["number"])


def _client(deps: Deps) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=deps.outside, timeout=60, trust_env=False, headers={"X-Pid": str(os.getpid())})


def _agent(name: str, limits: RunLimits) -> Any:
    return durable(
        Agent(FunctionModel(says, model_name="scripted"), name=name, deps_type=Deps, toolsets=[tools]),
        version="1",
        deps=make_deps,
        input=Script,
        prompt=lambda script: script.model_dump_json(),
        tables=TABLES,
        limits=limits,
    )


# `hasty` does not wait for an effect: its run waits without a worker at once.
AGENTS = [_agent("scripted", RunLimits()), _agent("hasty", RunLimits(inline_wait_s=0.1))]
