"""`surefoot run AGENT` and `surefoot runs list|show|release|cancel|undo`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from app.acting import Acting
from app.cli.session import acting, ask, fail, opened
from app.cli.stuck import stuck
from app.surefoot import Surefoot
from transactions import RunState
from transactions.canonical import read_json

group = typer.Typer(no_args_is_help=True, help="Look at runs, cancel them, and undo what they did.")
group.command("stuck")(stuck)

_POLL_S = 0.3
_GOES_ON = (RunState.QUEUED, RunState.RUNNING, RunState.CANCELLING)
RunArgument = Annotated[str, typer.Argument(help="the run's id")]


def run(
    agent: Annotated[str, typer.Argument(help="the agent's name")],
    input_: Annotated[str, typer.Option("--input", help="the input: text, or JSON for an agent that takes more")],
    data: Annotated[Path | None, typer.Option(help="a CSV file, for an agent whose input has `data`")] = None,
    key: Annotated[str | None, typer.Option(help="idempotency key: the same key and input is the same run")] = None,
    wait: Annotated[
        bool, typer.Option(help="follow the run until it waits or ends, with a worker in this process")
    ] = True,
) -> None:
    """Start a run, and by default work on it here until it waits for a person or ends."""
    with opened() as surefoot:
        status = asyncio.run(_run(surefoot, agent, _parse(input_, data), key, wait=wait))
    _print_status(status)
    if status["state"] in (RunState.FAILED, RunState.HELD):
        raise typer.Exit(1)


def _parse(text: str, data: Path | None) -> object:
    try:
        value: object = read_json(text)
    except ValueError:
        value = text
    if not isinstance(value, dict):
        value = text
        if data is not None:
            fail('--data needs a JSON input to go into, such as --input \'{"month": "2013-08"}\'.')
    elif data is not None:
        return {**cast("dict[str, object]", value), "data": str(data.absolute())}
    return cast(object, value)


async def _run(surefoot: Surefoot, agent: str, value: object, key: str | None, *, wait: bool) -> Mapping[str, Any]:
    try:
        who = await acting(surefoot)
        if not wait:
            return await who.status(await who.start(agent, value, key=key))
        async with surefoot.lifespan():  # first of all, for this worker may be the first that serves the agent
            return await _follow(who, await who.start(agent, value, key=key))
    finally:
        await surefoot.close()


async def _follow(who: Acting, run_id: str) -> Mapping[str, Any]:
    """Until the run waits for a person or ends."""
    print(f"run {run_id}", flush=True)
    while True:
        status = await who.status(run_id)
        if status["state"] not in _GOES_ON and not status["open_deliveries"]:
            return status
        if status["state"] == RunState.WAITING and status["waiting_for"] == ["approval"]:
            return status
        if status["state"] == RunState.WAITING and await _is_on_the_desk(who, run_id):
            print("a person has to say what happened: see `surefoot actions list`")
            return status
        await asyncio.sleep(_POLL_S)


async def _is_on_the_desk(who: Acting, run_id: str) -> bool:
    """Whether the run waits for an effect that nobody can be asked about."""
    unknown = (await who.desk()).unknown
    return any(row["run_id"] == run_id and row["waits_for"] == "person" for row in unknown)


@group.command("list")
def list_runs(
    state: Annotated[RunState | None, typer.Option(help="only runs in this state")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
) -> None:
    """The newest runs first."""
    rows = ask(lambda who: who.runs(state=state, limit=limit))
    for row in rows:
        waiting = f" for {', '.join(row['waiting_for'])}" if row["waiting_for"] else ""
        ended_so = row["reason"] if row["state"] in (RunState.FAILED, RunState.HELD) else None
        todo = "".join(f"; {words}" for words in (ended_so, row["what_to_do"]) if words)
        print(
            f"{row['run_id']}  {row['created_at']:%Y-%m-%d %H:%M:%S}  {row['agent']:20}  {_state(row)}{waiting}{todo}"
        )
    if not rows:
        print("no runs")


@group.command("show")
def show(run_id: RunArgument) -> None:
    """The run's state and its timeline."""

    async def look(who: Acting) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        return await who.status(run_id), await who.timeline(run_id)

    status, timeline = ask(look)
    _print_status(status)
    print_timeline(timeline)


@group.command("release")
def release(run_id: RunArgument) -> None:
    """Let a held run go on, once what held it is put right."""
    ask(lambda who: who.release(run_id))
    print(f"released {run_id}")


@group.command("cancel")
def cancel(
    run_id: RunArgument,
    reason: Annotated[str, typer.Option(help="why")] = "asked for",
) -> None:
    """Cancel a run that is not over: what was not sent never will be. A running one is ended by its worker."""

    async def cancelled(who: Acting) -> str:
        await who.cancel(run_id, reason=reason)
        return (await who.status(run_id))["state"]

    print(f"{ask(cancelled)} {run_id}")


@group.command("undo")
def undo(
    run_id: RunArgument,
    only_list: Annotated[bool, typer.Option("--list", help="only say what was done and can be undone")] = False,
    reason: Annotated[str, typer.Option(help="why")] = "asked for",
) -> None:
    """Have undone what a run did that is over, what was done last first."""
    found = ask(lambda who: who.undoable(run_id) if only_list else who.undo(run_id, reason=reason))
    for done in found:
        print(f"{done.action_id}\n  {done.tool} {json.dumps(done.request)} answered {json.dumps(done.result)}")
        print(f"  {done.standing.replace('_', ' ')}{f' ({done.why})' if done.why else ''}: {done.next}")
    if not found:
        print("it did nothing outside")


def _state(row: Mapping[str, Any]) -> str:
    """The state, and the phase where it says more than that and what is waited for."""
    phase = row["phase"]
    says_more = phase is not None and phase.lower() not in (row["state"], "awaiting approval")
    return f"{row['state']} ({phase})" if says_more else f"{row['state']}"


def _print_status(status: Mapping[str, Any]) -> None:
    waiting = f" for {', '.join(status['waiting_for'])}" if status["waiting_for"] else ""
    print(f"run {status['run_id']} of {status['agent']}: {_state(status)}{waiting}")
    for words in filter(None, (status["reason"], status["what_to_do"])):
        print(f"  {words}")
    if status["output"] is not None:
        print(f"  {status['output']}")


def print_timeline(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line a row: when, what, how, by which generation of which worker."""
    for row in rows:
        generation = "" if row["generation"] is None else f" g{row['generation']}"
        detail = (row["detail"] or "")[:100]
        print(
            f"{row['at']:%H:%M:%S.%f}"[:-3]
            + f"{generation:4} {row['what']:12} {row['name']:60} {row['how'] or '':10} {detail}"
        )
