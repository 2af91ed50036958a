"""An agent that does something with every kind of tool, and in every way to be safe: the second subject of the kit.

Its model is a script. What it does: `turns`. Nothing in a run is left to chance but the numbers that services draw.
Where its services are: ERRANDS_TICKETS_URL, ERRANDS_JOBS_URL, ERRANDS_PAYMENTS_URL, SUREFOOT_PUBLISHING_URL; whom it
mails: SUREFOOT_TEAM.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import httpx
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from app.agents.monthly_report.publishing import PublishingService
from outbox import Mail
from steps import (
    Absent,
    Action,
    Approval,
    Found,
    NotSent,
    Refused,
    RunLimits,
    Tools,
    Unsure,
    durable,
    tool_returns,
    turns_so_far,
)
from transactions import Run, Tx

TABLES = """
create schema if not exists errands;
create table if not exists errands.notes (
    note bigint generated always as identity primary key, text text not null, run_id text not null
);
"""
# Short, so that a verdict of "absent" is soon believed.
ATTEMPT_S = 3.0
SEGMENT_TURNS_MAX = 6  # less than the turns of a run, so that it goes through more than one segment
_LOOK_S = 0.02
_LOOKS_MAX = 200
_MANAGER = Approval[Any, [str]](by="role:manager")
_TWO = Approval[Any, [str]](by="role:manager", people_min=2)
_NOBODY = Approval[Any, [str]](by="user:nobody", expires=timedelta(seconds=1))
_LARGE_CENTS = 100_00
_UNPROCESSABLE = 422
_TOO_LONG = "a subject " * 20

Calls = list[tuple[str, dict[str, Any]]]


class Errands(BaseModel):
    """`pay`: end with a payment, whose outcome nobody can tell when its answer is lost. `only`: nothing but this."""

    pay: bool = True
    only: Literal["open_ticket", "publish", "pay"] | None = None


@dataclass(frozen=True, slots=True)
class Deps:
    """The services, by their URLs; `team` is a mail address."""

    tickets: str
    jobs: str
    payments: str
    publishing: PublishingService
    team: str
    run: Run


def make_deps(run: Run) -> Deps:
    def told(variable: str) -> str:
        return os.environ.get(variable, "")

    return Deps(
        tickets=told("ERRANDS_TICKETS_URL"),
        jobs=told("ERRANDS_JOBS_URL"),
        payments=told("ERRANDS_PAYMENTS_URL"),
        publishing=PublishingService(told("SUREFOOT_PUBLISHING_URL")),
        team=told("SUREFOOT_TEAM"),
        run=run,
    )


def turns(errands: Errands, job: Any) -> list[Calls]:
    """The calls of each response. `job`: the number of the job, once there is one."""
    alone: Mapping[str, dict[str, Any]] = {
        "open_ticket": {"subject": "the lamp is broken"},
        "publish": {"title": "lamp"},
        "pay": {"cents": 1250},
    }
    if errands.only is not None:
        return [[(errands.only, alone[errands.only])]]
    return [
        [("find_notes", {"text": "hello!"})],
        [("write_note", {"text": "hello!"})],  # has to be corrected
        [("write_note", {"text": "hello"}), ("find_notes", {"text": "hello!"})],
        [("open_ticket", {"subject": "the lamp is broken"})],
        [("publish", {"title": "lamp"}), ("write_note", {"text": "published"})],
        [("submit_job", {"text": "three words here"})],
        [("job_result", {"job": job}), ("find_notes", {"text": "hello"})],
        [("phone", {"text": "on a bad line"})],
        [("fax", {"text": "to nobody"})],
        [("announce", {"title": "party"}), ("sign", {"text": "party"}), ("write_note", {"text": "announced"})],
        [
            ("sign", {"text": "contract"}),
            ("engrave", {"title": "a note more"}),
        ],  # agreed to, and asked about anew by then
        [("open_ticket", {"subject": _TOO_LONG}), ("write_note", {"text": "never"})],  # refused, and what is behind it
        [("whisper", {"text": "psst"}), ("write_note", {"text": "never"})],  # nobody says anything to it
        *([[("pay", {"cents": 1250})]] if errands.pay else []),
    ]


def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    """The next response of the script; the last one says what the model was answered."""
    assert isinstance(messages[0], ModelRequest)
    prompt = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    submitted = tool_returns(messages).get("submit_job")
    script = turns(Errands.model_validate_json(str(prompt.content)), submitted and submitted.content)
    turn = turns_so_far(messages)
    if turn < len(script):
        return ModelResponse(parts=[ToolCallPart(tool, arguments) for tool, arguments in script[turn]])
    return ModelResponse(parts=[TextPart(json.dumps(_told(messages)))])


def _told(messages: list[ModelMessage]) -> list[list[str]]:
    """Tool, outcome and words of every answer, in order. Without numbers that services draw, and how a try failed."""
    drawn = {"publish", "submit_job", "phone", "fax", "announce", "engrave", "pay"}
    told: list[list[str]] = []
    for part in [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]:
        if isinstance(part, ToolReturnPart):
            bare = part.tool_name in drawn or (part.tool_name, part.outcome) == ("open_ticket", "success")
            told.append([part.tool_name, part.outcome, "" if bare else str(part.content)])
    return told


tools = Tools[Deps](id="errands")


@tools.read
async def find_notes(ctx: RunContext[Deps], text: str) -> int:
    """How many notes of this run say that."""
    run = ctx.deps.run
    sql = "select count(*) as notes from errands.notes where run_id = :run_id and text = :text"
    return int((await run.query(sql, run_id=run.run_id, text=text))[0]["notes"])


@tools.transaction
async def write_note(tx: Tx[Deps], text: str) -> str:
    """Write a note, without an exclamation mark, and mail it."""
    await _note(tx, text)
    if "!" in text:
        raise ModelRetry("write it without an exclamation mark")
    await tx.outbox("mail", Mail(to=[tx.deps.team], subject=text, body=text))
    return text


@tools.transaction(approval=_TWO)
async def sign(tx: Tx[Deps], text: str) -> str:
    """Sign it, once two managers have agreed."""
    await _note(tx, f"signed: {text}")
    return text


@tools.effect(idempotent=True, attempt_s=ATTEMPT_S)
async def open_ticket(action: Action[Deps], subject: str) -> int:
    """Open a ticket at a desk that honours keys."""
    body = {"customer": action.run.run_id, "subject": subject}
    async with _client(action.deps.tickets) as client:
        answer = await client.post("/tickets", json=body, headers={"Idempotency-Key": action.id})
    if answer.status_code == _UNPROCESSABLE:
        raise Refused(f"the desk does not take it: {answer.json()['detail'][0]}")
    return int(answer.raise_for_status().json()["id"])


async def published(action: Action[Deps], title: str) -> Found[int] | Absent:  # noqa: ARG001
    """The service can be searched for our reference."""
    found = await action.deps.publishing.find(action.id)
    return Absent() if found is None else Found(found.id)


@tools.effect(verify=published, attempt_s=ATTEMPT_S)
async def publish(action: Action[Deps], title: str) -> int:
    """Publish it where keys are not honoured."""
    return await _publish(action, title)


@tools.effect(verify=published, approval=_MANAGER, attempt_s=ATTEMPT_S)
async def announce(action: Action[Deps], title: str) -> int:
    """Publish it, once a manager has agreed."""
    return await _publish(action, title)


async def notes_so_far(tx: Tx[Deps], title: str) -> Mapping[str, int]:  # noqa: ARG001
    """What an agreement is bound to: the notes as they are."""
    sql = "select count(*) as notes from errands.notes where run_id = :run_id"
    return {"notes": int((await tx.execute(sql, run_id=tx.run.run_id))[0]["notes"])}


@tools.effect(verify=published, approval=Approval(by="role:manager", binds=notes_so_far), attempt_s=ATTEMPT_S)
async def engrave(action: Action[Deps], title: str) -> int:
    """Publish it, once a manager has agreed, with the notes as they are."""
    return await _publish(action, title)


@tools.transaction(approval=_NOBODY)
async def whisper(tx: Tx[Deps], text: str) -> str:
    """Note it, if somebody agrees who never does."""
    await _note(tx, text)
    return text


async def submitted(action: Action[Deps], text: str) -> Found[int] | Absent:  # noqa: ARG001
    """The job runner can be searched for our reference."""
    job = await _find_job(action)
    return Absent() if job is None else Found(job)


@tools.effect(verify=submitted, attempt_s=ATTEMPT_S)
async def submit_job(action: Action[Deps], text: str) -> int:
    """Have the words counted; the number of the job."""
    return await _submit(action, text)


@tools.read
async def job_result(ctx: RunContext[Deps], job: int) -> int:
    """Wait for the job; how many words it has counted. Raises TimeoutError."""
    for _ in range(_LOOKS_MAX):
        async with _client(ctx.deps.jobs) as client:
            if (await client.get(f"/jobs/{job}")).raise_for_status().json()["state"] != "running":
                return int((await client.get(f"/jobs/{job}/result")).raise_for_status().json()["words"])
        await asyncio.sleep(_LOOK_S)
    raise TimeoutError(f"job {job} still runs after {_LOOKS_MAX} looks: see what the job runner does")


async def phoned(action: Action[Deps], text: str) -> Found[int] | Absent | Unsure:  # noqa: ARG001
    """Nobody says that they have understood before they are done."""
    job = await _find_job(action)
    if job is None:
        return Absent()
    async with _client(action.deps.jobs) as client:
        state = (await client.get(f"/jobs/{job}")).raise_for_status().json()["state"]
    return Unsure(state) if state == "running" else Found(job)


@tools.effect(verify=phoned, attempt_s=ATTEMPT_S)
async def phone(action: Action[Deps], text: str) -> int:
    """Submit a job on a line that is busy at first, and breaks down before the answer the next time."""
    if action.attempt == 1:
        raise NotSent("the line is busy")
    job = await _submit(action, text)
    if action.attempt == 2:
        raise ConnectionError("the line broke down")
    return job


async def faxed(action: Action[Deps], text: str) -> Absent:  # noqa: ARG001
    """Nobody has a fax."""
    return Absent()


@tools.effect(verify=faxed, attempt_s=ATTEMPT_S, attempts_max=1)
async def fax(action: Action[Deps], text: str) -> None:  # noqa: ARG001
    """Give up at once: nobody has a fax."""
    raise NotSent("nobody answers")


def is_large(tx: Tx[Deps], cents: int) -> bool:  # noqa: ARG001
    return cents > _LARGE_CENTS


@tools.effect(
    at_most_once=True,
    attempt_s=ATTEMPT_S,
    approval=Approval(by="role:manager", when=is_large, policy="payments of over 100"),
)
async def pay(action: Action[Deps], cents: int) -> int:
    """Pay where keys are not honoured and nothing can be looked up."""
    async with _client(action.deps.payments) as client:
        answer = await client.post("/payments", json={"customer": action.run.run_id, "cents": cents})
        return int(answer.raise_for_status().json()["id"])


async def _note(tx: Tx[Deps], text: str) -> None:
    await tx.execute(
        "insert into errands.notes (text, run_id) values (:text, :run_id)", text=text, run_id=tx.run.run_id
    )


async def _publish(action: Action[Deps], title: str) -> int:
    sha256 = hashlib.sha256(title.encode()).hexdigest()
    return (await action.deps.publishing.publish(action.id, title, title, sha256)).id


async def _find_job(action: Action[Deps]) -> int | None:
    async with _client(action.deps.jobs) as client:
        found = (await client.get("/jobs", params={"reference": action.id})).raise_for_status().json()
    return int(found[0]["id"]) if found else None


async def _submit(action: Action[Deps], text: str) -> int:
    async with _client(action.deps.jobs) as client:
        answer = await client.post("/jobs", json={"reference": action.id, "text": text})
        return int(answer.raise_for_status().json()["id"])


def _client(url: str) -> httpx.AsyncClient:
    agent = {"User-Agent": f"errands/1 (pid {os.getpid()})"}
    return httpx.AsyncClient(base_url=url, timeout=ATTEMPT_S, trust_env=False, headers=agent)


errands = durable(
    Agent(FunctionModel(says, model_name="script"), name="errands", deps_type=Deps, toolsets=[tools]),
    version="1",
    deps=make_deps,
    input=Errands,
    prompt=lambda errands: errands.model_dump_json(),
    tables=TABLES,
    limits=RunLimits(segment_turns_max=SEGMENT_TURNS_MAX),
)
