"""`surefoot demo`: the main job on real input, killed at the worst moments, and what became of it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from app.cli.session import told
from steps.models import VARIABLE

Json = Annotated[Path | None, typer.Option("--json", help="write the same facts to this file")]
Hold = Annotated[bool, typer.Option("--hold", help="stop at 'published, not recorded' and let me kill the process")]
Kills = Annotated[int | None, typer.Option(help="so many kills at random failpoints instead of the three of the story")]
Seed = Annotated[int | None, typer.Option(help="which random failpoints (default 0)")]
Data = Annotated[Path | None, typer.Option(help="a CSV of daily figures, with the bundled file's columns")]
Month = Annotated[str, typer.Option(help="the month to report on")]


def demo(
    json: Json = None,
    hold: Hold = False,
    kills: Kills = None,
    seed: Seed = None,
    data: Data = None,
    month: Month = "2013-08",
) -> None:
    """Kill an agent at its worst moments, as a plain loop and on Surefoot, and check what each left in the world."""
    if os.environ.pop(VARIABLE, None):
        print(f"The demo's model is scripted: {VARIABLE} is not used.")
    with told():
        from app.demo.demo import play  # after the environment is settled: the agent is made on import
        from app.demo.options import Options

        options = Options(month=month, data=data, json=json, hold=hold, kills=kills, seed=seed)
        if not play(options):
            raise typer.Exit(1)
