"""`surefoot runs stuck`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.session import ask


def stuck(limit: Annotated[int, typer.Option(min=1, max=1000)] = 100) -> None:
    """Runs that are in a state for longer than their agent allows, those over it the longest first."""
    rows = ask(lambda who: who.stuck(limit=limit))
    for row in rows:
        print(_words(row))
    if not rows:
        print("no run is stuck")


def _words(row: Mapping[str, Any]) -> str:
    since = f"{row['since']:%Y-%m-%d %H:%M:%S}"
    return (
        f"{row['run_id']}  {row['agent']:20}  {row['state']} since {since}, {row['seconds']:.0f} s of "
        f"{row['limit_s']:g} s\n  {row['why']}\n  {row['what_to_do']}"
    )
