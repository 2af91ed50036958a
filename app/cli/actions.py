"""`surefoot actions list|show|settle|ask`."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import JsonValue

from app.cli.session import ask, given_json
from transactions.canonical import read_json
from transactions.desk import File, Outcome

group = typer.Typer(no_args_is_help=True, help="Say what became of effects whose outcome is unknown.")

Id = Annotated[str, typer.Argument(help="the action's id")]
Said = Annotated[Outcome, typer.Argument(help="what became of it; absent: it did not happen, and is sent again")]
Reason = Annotated[str | None, typer.Option(help="why; after `failed` the agent is told")]
Result = Annotated[str | None, typer.Option(help="of `succeeded`: what the tool would have answered, as JSON")]
Evidence = Annotated[str | None, typer.Option(help="how you know: text or JSON, such as the id it has there")]


@group.command("list")
def on_the_desk() -> None:
    """What is stuck, since when, why, and what can be done; and what contradicts a settled effect."""
    desk = ask(lambda who: who.desk())
    for row in desk.unknown:
        _print_unknown(row)
    for row in desk.contradictions:
        _print_contradiction(row)
    if not desk.unknown and not desk.contradictions:
        print("the desk is empty")


@group.command("show")
def show(action_id: Id) -> None:
    """Request, attempts, every verdict with its evidence, receipts and decisions of one action."""
    file = ask(lambda who: who.action(action_id))
    if file.unknown is not None:
        _print_unknown(file.unknown)
    else:
        row = file.action
        print(f"{row['action_id']}\n  {row['tool']} {json.dumps(row['request'])}\n  {row['state']}: ", end="")
        print(row["reason"] or json.dumps(row["result"]))
    _print_history(file)
    for row in file.contradictions:
        _print_contradiction(row)


@group.command("settle")
def settle(
    action_id: Id, outcome: Said, reason: Reason = None, result: Result = None, evidence: Evidence = None
) -> None:
    """Say what became of it; one decision counts, and the run goes on."""
    answer = None if result is None else given_json("--result", result)
    proof = None if evidence is None else _json_or_text(evidence)
    run_id = ask(lambda who: who.settle(action_id, outcome, reason=reason, result=answer, evidence=proof))
    row = ask(lambda who: who.action(action_id)).action
    if row["state"] == "CANCELLED":
        print(f"{outcome}; run {run_id} is over, so nothing is sent")
    else:
        print(
            f"absent; it is sent again for run {run_id}" if outcome == "absent" else f"{outcome}; run {run_id} goes on"
        )


@group.command("ask")
def ask_again(action_id: Id) -> None:
    """Have the other side asked again what became of it."""
    run_id = ask(lambda who: who.ask_again(action_id))
    print(f"it is asked again for run {run_id}")


def _json_or_text(text: str) -> JsonValue:
    try:
        return read_json(text)
    except ValueError:
        return text


def _print_unknown(row: Mapping[str, Any]) -> None:
    print(f"{row['action_id']}\n  {row['tool']} {json.dumps(row['request'])}")
    attempt = f"attempt {row['attempt']} of {row['attempts_max']}"
    print(f"  {row['state']} since {row['since']:%Y-%m-%d %H:%M:%S %Z} ({attempt}): {row['why']}")
    if row["last_verdict"]:
        print(f"  asked {row['verifications']} times, last {row['last_verdict']} {json.dumps(row['last_evidence'])}")
    again = "" if row["asked_again_at"] is None else f" ({row['asked_again_at']:%H:%M:%S %Z})"
    print(f"  {row['next']}{again}\n  can be said now: {', '.join(row['can']) or 'nothing'}")


def _print_contradiction(row: Mapping[str, Any]) -> None:
    print(f"CONTRADICTION of {row['action_id']}, {row['since']:%Y-%m-%d %H:%M:%S %Z}\n  {row['why']}")
    print(f"  {row['source']} to attempt {row['attempt']}: {json.dumps(row['result'])}, by {row['worker_id']}")
    print(f"  {row['state']}, and what counts: {json.dumps(row['counts'])}\n  {row['next']}")


def _print_history(file: File) -> None:
    for row in file.attempts:
        print(f"  {row['claimed_at']:%H:%M:%S.%f} attempt {row['attempt']} by {row['worker_id']}: ", end="")
        print(f"{row['outcome'] or 'no answer recorded'} {row['detail'] or ''}".rstrip())
    for row in file.verifications:
        print(f"  {row['at']:%H:%M:%S.%f} asked about attempt {row['attempt']}: ", end="")
        print(f"{row['verdict']} {json.dumps(row['evidence'])}")
    for row in file.decisions:
        print(
            f"  {row['at']:%H:%M:%S.%f} {row['decided_by']} says of attempt {row['attempt']}: {row['outcome']}", end=""
        )
        print("".join(f", {part}" for part in (row["reason"], _shown(row["evidence"])) if part))
    for row in file.receipts:
        print(f"  {row['at']:%H:%M:%S.%f} receipt ({row['source']}) of attempt {row['attempt']}: ", end="")
        print(json.dumps(row["result"]))


def _shown(evidence: JsonValue) -> str | None:
    return None if evidence is None else json.dumps(evidence)
