"""`surefoot retention show|run|keep`."""

import math
from types import MappingProxyType
from typing import Annotated

import typer

from app.acting import Acting
from app.acting.retention import Kept
from app.cli.session import ask, fail
from app.retention import Removed

group = typer.Typer(no_args_is_help=True, help="How long what is kept, what was removed, and removing it now.")

FOREVER, SETTING = "forever", "default"
_SIZES_SHOWN = 10
_UNITS = MappingProxyType({"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0})


@group.command("show")
def show() -> None:
    """How long what is kept, what was removed in the last 30 days, and how large the largest tables are."""
    found = ask(lambda who: who.retention())
    for kind, seconds in found.keep.items():
        print(f"{kind:10} {_age(seconds)}")
    for row in found.policies:
        of = f"agent {row['agent']}" if row["agent"] else "all agents"
        print(f"{row['kind']:10} {_age(row['keep_s'])} for {of}, says {row['changed_by']}")
    _show_done(found)


def _show_done(found: Kept) -> None:
    for row in found.removed:
        print(f"{row['day']}  removed {row['items']} {row['kind']} in {row['rows']} rows, by {row['by']}")
    if not found.removed:
        print("nothing was removed in the last 30 days")
    for row in found.sizes[:_SIZES_SHOWN]:
        megabytes = (row["table_bytes"] + row["index_bytes"]) / 1e6
        print(
            f"{row['name']:32} {megabytes:10.1f} MB, {row['index_bytes'] / 1e6:.1f} of them indexes, {row['rows']} rows"
        )


@group.command("run")
def run(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be removed, and what stays")] = False,
    kind: Annotated[list[str], typer.Option(help="only this; repeat it")] = [],  # noqa: B006  typer reads it alone
) -> None:
    """Remove now what is old enough, as workers do by themselves."""

    async def removed(who: Acting) -> list[Removed]:
        return list(await who.run_retention(kinds=kind or None, dry_run=dry_run))

    done = ask(removed)
    for one in done:
        if one.items or one.kept:
            print(f"{one.kind}: {'would remove' if dry_run else 'removed'} {one.items} in {one.rows} rows")
        for why, many in one.kept.most_common():
            print(f"  {many} stay: {why}")
    if not any(one.items for one in done):
        print("nothing to remove")


@group.command("keep")
def keep(
    kind: Annotated[str, typer.Argument(help="messages, events, outbox, artifacts, runs or keys")],
    age: Annotated[str, typer.Argument(help="such as 30d, 12h or 90s; `forever`; `default`: as the setting says")],
    agent: Annotated[str | None, typer.Option(help="only of this agent")] = None,
    tenant: Annotated[str | None, typer.Option(help="whose; default: your own")] = None,
) -> None:
    """How long a tenant keeps it, instead of what the setting says."""
    keep_s = _seconds(age)
    ask(lambda who: who.set_retention(kind, keep_s, agent=agent, tenant=tenant))
    print(f"{kind} of {agent or 'all agents'}: {'as the setting says' if keep_s is None else _age(keep_s)}")


def _seconds(age: str) -> float | None:
    if age in (FOREVER, SETTING):
        return math.inf if age == FOREVER else None
    number, unit = age[:-1], _UNITS.get(age[-1:])
    if unit is None or not number.replace(".", "", 1).isdecimal():
        fail(f"{age!r} is no age: write one such as 30d, 12h, 5m or 90s, `{FOREVER}` or `{SETTING}`.")
    return float(number) * unit


def _age(seconds: float) -> str:
    if seconds == math.inf:
        return "for ever"
    unit, size = next(((unit, size) for unit, size in reversed([*_UNITS.items()]) if seconds >= size), ("s", 1.0))
    return f"for {seconds / size:g} {unit}"
