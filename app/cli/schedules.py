"""`surefoot schedules set|list|remove|pause|resume`."""

from typing import Annotated

import typer

from app.cli.runs import parse_input
from app.cli.session import ask
from transactions.schedules import Missed, Overlap

group = typer.Typer(no_args_is_help=True, help="Runs that start by the clock.")

Name = Annotated[str, typer.Argument(help="the schedule's name")]
_TIME = "%Y-%m-%d %H:%M:%S %Z"


@group.command("set")
def set_schedule(
    name: Name,
    agent: Annotated[str, typer.Argument(help="the agent's name")],
    cron: Annotated[str, typer.Option(help="minute, hour, day of month, month, day of week: '0 9 * * MON-FRI'")],
    input_: Annotated[str, typer.Option("--input", help="the input: text, or JSON for an agent that takes more")],
    time_zone: Annotated[str, typer.Option(help="by the clock of this zone, such as Europe/Berlin")] = "UTC",
    priority: Annotated[int, typer.Option(help="from -100 to 100; the higher goes first")] = 0,
    missed: Annotated[Missed, typer.Option(help="which of the times to start that no worker was there for")] = "last",
    overlap: Annotated[Overlap, typer.Option(help="what to do while the run before is not over")] = "skip",
) -> None:
    """Have runs of an agent start by the clock, as yours; or change that."""
    value = parse_input(input_)
    ask(
        lambda who: who.set_schedule(
            name, agent, value, cron=cron, time_zone=time_zone, priority=priority, missed=missed, overlap=overlap
        )
    )
    print(f"schedule {name} is set")


@group.command("list")
def list_schedules() -> None:
    """What starts when, and what became of it the last time."""
    rows = ask(lambda who: who.schedules())
    for row in rows:
        due = "paused" if not row["enabled"] else "never due again"
        if row["next_at"] is not None:
            due = f"due at {row['next_at'].strftime(_TIME)}"
        print(f"{row['name']:20}  {row['agent']:20}  {row['cron']}  {row['time_zone']}  {due}, as {row['principal']}")
        if row["last_at"] is not None:
            print(f"  the last time at {row['last_at'].strftime(_TIME)}: run {row['last_run_id']}")
        if row["last_why"] is not None:
            print(f"  not started: {row['last_why']}")
    if not rows:
        print("no schedules")


@group.command("remove")
def remove(name: Name) -> None:
    """It starts nothing any more."""
    ask(lambda who: who.remove_schedule(name))
    print(f"removed {name}")


@group.command("pause")
def pause(name: Name) -> None:
    """It starts nothing until it is resumed."""
    ask(lambda who: who.pause_schedule(name))
    print(f"paused {name}")


@group.command("resume")
def resume(name: Name) -> None:
    """It is due again, from now on."""
    ask(lambda who: who.resume_schedule(name))
    print(f"resumed {name}")
