"""`surefoot approvals list|show|approve|reject`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import JsonValue

from app.cli.session import ask, fail, given_json
from transactions.deciding import Decision

group = typer.Typer(no_args_is_help=True, help="Decide what waits for a person.")

Id = Annotated[str, typer.Argument(help="the approval's id")]
Reason = Annotated[str | None, typer.Option(help="why; the agent is told")]
Changes = Annotated[
    str | None,
    typer.Option(help="approve this instead: JSON of the arguments to change, or what the tool lets you edit"),
]
Text = Annotated[
    Path | None,
    typer.Option(
        help="approve this text instead: a file, for a tool that lets you edit one", exists=True, dir_okay=False
    ),
]
_TIME = "%Y-%m-%d %H:%M %Z"


@group.command("list")
def pending() -> None:
    """What waits for a decision, of whom, and exactly what it is bound to."""
    rows = ask(lambda who: who.pending_approvals())
    for row in rows:
        print(row["approval_id"])
        _print_asked(row, row["policy"])
        if row["agreed"]:
            print(f"  agreed: {', '.join(row['agreed'])}")
        _print_bound(row)
    if not rows:
        print("nothing waits for a decision")


@group.command("show")
def show(approval_id: Id) -> None:
    """One approval: what it is bound to, what was said of it, and what has changed since the one before."""
    row = ask(lambda who: who.approval(approval_id))
    why = f": {row['reason']}" if row["reason"] else ""
    print(f"{row['approval_id']}\n  {row['state']}{why}")
    terms = cast("dict[str, Any]", row["terms"] or {})
    _print_asked(row, terms.get("policy"))
    _print_bound(row)
    for said in row["decisions"]:
        known = "" if said["authenticated"] else " (unauthenticated)"
        why = f": {said['reason']}" if said["reason"] else ""
        print(f"  {said['at'].strftime(_TIME)} {said['decided_by']}{known} as {said['in_right_of']}: ", end="")
        print(f"{said['decision']}{why}")


def _print_asked(row: Mapping[str, Any], policy: str | None) -> None:
    """Of whom, how many, until when, by which rule, and who may not."""
    whom = " or ".join(row["approvers"] or [row["approver"]])
    several = f" ({row['people_min']} different people)" if row["people_min"] > 1 else ""
    print(f"  needs {whom}{several} before {row['expires_at'].strftime(_TIME)}", end="")
    print(f", by the policy: {policy}" if policy else "")
    if row.get("escalates_to"):
        print(f"  or, from {row['escalates_at'].strftime(_TIME)} on, {' or '.join(row['escalates_to'])}")
    if row["requester"]:
        print(f"  run {row['run_id']} was started by {row['requester']}", end="")
        print(", who may not decide" if row["not_requester"] else "")


def _print_bound(row: Mapping[str, Any]) -> None:
    print(f"  {row['tool']} {json.dumps(row['arguments'])}\n  bound to {json.dumps(row['binding'])}")
    if row["supersedes"] is not None:
        print(f"  instead of {row['supersedes']}")
    difference = cast("dict[str, list[Any]]", row["difference"] or {})
    for name, (then, now) in difference.items():
        print(f"  changed: {name} is {json.dumps(now)}, was {json.dumps(then)}")


@group.command("approve")
def approve(approval_id: Id, reason: Reason = None, changes: Changes = None, text: Text = None) -> None:
    """Approve, as it is or with changes; the run goes on."""
    if changes is not None and text is not None:
        fail("--changes and --text say the same: give one of them.")
    changed = None if changes is None else given_json("--changes", changes)
    if changes is not None and changed is None:
        fail("--changes null changes nothing: leave it out to approve it as it is.")
    _decide(approval_id, "approve", reason, changed if text is None else _read(text))


@group.command("reject")
def reject(approval_id: Id, reason: Reason = None) -> None:
    """Reject; the agent is told, with the reason."""
    _decide(approval_id, "reject", reason, None)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--text {file} cannot be read as UTF-8: {error}")


def _decide(approval_id: str, decision: Decision, reason: str | None, changes: JsonValue) -> None:
    run_id = ask(lambda who: who.decide(approval_id, decision, reason=reason, changes=changes))
    if decision == "reject":
        print(f"rejected; run {run_id} is told")
        return
    waits = "approval" in (ask(lambda who: who.status(run_id))["waiting_for"] or ())
    print(f"approved; run {run_id} " + ("waits for another approval" if waits else "goes on"))
