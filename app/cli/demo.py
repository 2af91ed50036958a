"""`surefoot demo`: the main job on real input, killed at the worst moments, and what became of it."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.session import told
from steps.models import VARIABLE
from transactions import InvalidInput

MONTH = "2013-08"
Agent = Annotated[
    Literal["monthly_report", "ticket_triage"],
    typer.Option(help="monthly_report: killed three times; ticket_triage: after each of three kinds of systems"),
]
Json = Annotated[Path | None, typer.Option("--json", help="write the same facts to this file")]
Hold = Annotated[bool, typer.Option("--hold", help="stop at 'published, not recorded' and let me kill the process")]
Edit = Annotated[bool, typer.Option("--edit", help="the manager edits the report after it was approved")]
Kills = Annotated[int | None, typer.Option(help="so many kills at random failpoints instead of the three of the story")]
Seed = Annotated[int | None, typer.Option(help="which random failpoints (default 0)")]
Data = Annotated[Path | None, typer.Option(help="a CSV of daily figures, with the bundled file's columns")]
Month = Annotated[str, typer.Option(help="the month to report on")]


def demo(
    agent: Agent = "monthly_report",
    json: Json = None,
    hold: Hold = False,
    edit: Edit = False,
    kills: Kills = None,
    seed: Seed = None,
    data: Data = None,
    month: Month = MONTH,
) -> None:
    """Kill an agent at its worst moments, as a plain loop and on Surefoot, and check what each left in the world."""
    if os.environ.pop(VARIABLE, None):
        print(f"The demo's model is scripted: {VARIABLE} is not used.")
    with told():
        if agent == "ticket_triage":
            from app.demo.triage import play as triage  # after the environment is settled: the agent is made on import

            if hold or edit or data or month != MONTH or (kills, seed) != (None, None):
                raise InvalidInput(f"--agent {agent} has a story and reports of its own: give it nothing but --json.")
            ended_well = triage.play(json)
        else:
            from app.demo.demo import play
            from app.demo.options import Options

            given = Options(month=month, data=data, json=json, hold=hold, edit=edit, kills=kills, seed=seed)
            ended_well = play(given)
        if not ended_well:
            raise typer.Exit(1)
