"""`surefoot approvals list|approve|reject`."""

import json
from typing import Annotated

import typer

from app.cli.session import ask
from transactions.approvals import Decision

group = typer.Typer(no_args_is_help=True, help="Decide what waits for a person.")

Id = Annotated[str, typer.Argument(help="the approval's id")]
Reason = Annotated[str | None, typer.Option(help="why; the agent is told")]


@group.command("list")
def pending() -> None:
    """What waits for a decision, and exactly what it is bound to."""
    rows = ask(lambda who: who.pending_approvals())
    for row in rows:
        print(f"{row['approval_id']}\n  needs {row['approver']} before {row['expires_at']:%Y-%m-%d %H:%M %Z}")
        print(f"  {row['tool']} {json.dumps(row['arguments'])}\n  bound to {json.dumps(row['binding'])}")
    if not rows:
        print("nothing waits for a decision")


@group.command("approve")
def approve(approval_id: Id, reason: Reason = None) -> None:
    """Approve; the run goes on."""
    _decide(approval_id, "approve", reason)


@group.command("reject")
def reject(approval_id: Id, reason: Reason = None) -> None:
    """Reject; the agent is told, with the reason."""
    _decide(approval_id, "reject", reason)


def _decide(approval_id: str, decision: Decision, reason: str | None) -> None:
    run_id = ask(lambda who: who.decide(approval_id, decision, reason=reason))
    print(f"{decision}d; run {run_id} goes on" if decision == "approve" else f"rejected; run {run_id} is told")
