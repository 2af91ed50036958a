"""`surefoot versions list|use`, and `surefoot runs hold|migrate`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.acting import Acting
from app.cli.session import ask, fail
from transactions import RunState

group = typer.Typer(no_args_is_help=True, help="Application versions: what each serves, and which one is current.")

_TIME = "%Y-%m-%d %H:%M:%S %Z"


@group.command("list")
def list_versions(limit: Annotated[int, typer.Option(min=1, max=1000, help="agents of versions")] = 200) -> None:
    """What was ever started here, the newest first: what is current, workers, and the runs that only it can read."""
    rows = ask(lambda who: who.versions(limit=limit))
    shown = None
    for row in rows:
        if row["n"] != shown:
            draining = f", {row['draining']} draining" if row["draining"] else ""
            print(f"{row['n']}  {row['version']}  {row['workers']} workers{draining}")
        shown = row["n"]
        print(f"  {_words(row)}")
    if not rows:
        print("no version: no worker was ever started here")


def _words(row: Mapping[str, Any]) -> str:
    said = [f"{row['agent']} {row['agent_version']}: writes state {row['state_version']}"]
    if row["reads"] != [row["state_version"]]:
        said.append(f"reads {', '.join(str(state) for state in row['reads'])}")
    if row["is_current"]:
        said.append(f"current since {row['current_since'].strftime(_TIME)} (by {row['current_by']})")
    if row["runs"]:
        bound = f", {row['bound_runs']} of which the current version cannot carry on" if row["bound_runs"] else ""
        said.append(f"{row['runs']} runs begun by it are not over{bound}")
    return "; ".join(said)


@group.command("use")
def use(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="its name or its number, as `list` shows them")],
) -> None:
    """Make a version current again. What waits, and what is new, goes on there."""
    print(f"current: {ask(lambda who: who.use_version(version))}")


def hold(
    run_id: Annotated[str, typer.Argument(help="the run's id")],
    reason: Annotated[str, typer.Option(help="why; it is kept")],
) -> None:
    """Put a run aside until it is released. One that is running is held at its next boundary."""
    state = ask(lambda who: who.hold(run_id, reason=reason))
    print(f"held {run_id}" if state is RunState.HELD else f"{run_id} is running: it is held at its next boundary")


def migrate(
    run_id: Annotated[str | None, typer.Argument(help="the run's id; or --all")] = None,
    to: Annotated[
        str | None, typer.Option(help="the version, or its number, that alone is to have it; default: the newest")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="every run that --from began last")] = False,
    begun_by: Annotated[str | None, typer.Option("--from", help="with --all: a version, or its number")] = None,
) -> None:
    """Have a run carried on by another application version, from its next boundary on."""
    if run_id is not None and not every and begun_by is None:
        version = ask(lambda who: who.move(run_id, to=to))
        print(f"{run_id}: {_follows(version)}")
        return
    if run_id is not None or not every or begun_by is None:
        fail("Name one run, or every run of a version: `surefoot runs migrate --all --from VERSION`.")

    async def all_of(who: Acting) -> tuple[int, Mapping[Any, str]]:
        moved = await who.move_all(begun_by=begun_by, to=to)
        return len(moved.run_ids), moved.refused

    count, refused = ask(all_of)
    for which, why in refused.items():
        print(f"{which} stays: {why}")
    print(f"{count} moved")


def _follows(version: str | None) -> str:
    return "it waits for a worker that can have it" if version is None else f"next is version {version}"
