"""`surefoot queue` and `surefoot limits set|list|unset`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.session import ask

limits = typer.Typer(no_args_is_help=True, help="How much of a tenant and of an agent may run, wait and start.")

_TIME = "%Y-%m-%d %H:%M:%S %Z"
OfTenant = Annotated[str | None, typer.Option("--tenant", help="of this tenant; default: of all tenants together")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="of this agent; default: of all agents")]


def queue() -> None:
    """What runs, what waits for its turn and why, what is delayed."""
    rows = ask(lambda who: who.queue())
    for row in rows:
        print(f"{row['agent']:20}  {row['running']} running, {row['waiting']} waiting, {row['delayed']} delayed")
        if row["waiting"]:
            print(f"  the oldest waits since {row['oldest_at'].strftime(_TIME)}: {row['why']}")
        if row["delayed"]:
            print(f"  the next one is due at {row['next_due_at'].strftime(_TIME)}")
    if not rows:
        print("nothing runs or waits")


@limits.command("set")
def set_limit(
    tenant: OfTenant = None,
    agent: OfAgent = None,
    running_max: Annotated[int | None, typer.Option(help="how many may run at once; 0: none begins")] = None,
    queued_max: Annotated[int | None, typer.Option(help="how many may wait to begin; one more is refused")] = None,
    starts_max: Annotated[int | None, typer.Option(help="how many may begin within --period-s")] = None,
    period_s: Annotated[float | None, typer.Option(help="seconds")] = None,
) -> None:
    """Set the limits of a tenant and agent, instead of those that they had. Needs an admin of tenant default."""
    ask(
        lambda who: who.set_limit(
            tenant=tenant,
            agent=agent,
            running_max=running_max,
            queued_max=queued_max,
            starts_max=starts_max,
            period_s=period_s,
        ),
        owner_may=True,
    )
    given = {"running_max": running_max, "queued_max": queued_max, "starts_max": starts_max, "period_s": period_s}
    print(f"set for {_whose(tenant, agent)}: {_values(given)}")


@limits.command("list")
def list_limits(
    everywhere: Annotated[bool, typer.Option("--all", help="of every tenant, for an admin of tenant default")] = False,
) -> None:
    """The limits that hold for your tenant."""
    rows = ask(lambda who: who.limits(everywhere=everywhere), owner_may=True)
    for row in rows:
        print(f"{_whose(row['of_tenant'], row['agent'])}: {_values(row)}")
        print(f"  set by {row['changed_by']} at {row['changed_at'].strftime(_TIME)}")
    if not rows:
        print("no limits")


@limits.command("unset")
def unset_limit(tenant: OfTenant = None, agent: OfAgent = None) -> None:
    """End the limits of a tenant and agent."""
    ask(lambda who: who.unset_limit(tenant=tenant, agent=agent), owner_may=True)
    print(f"no limit for {_whose(tenant, agent)}")


def _whose(tenant: str | None, agent: str | None) -> str:
    return ("all tenants" if tenant is None else f"tenant {tenant}") + ("" if agent is None else f", agent {agent}")


def _values(row: Mapping[str, Any]) -> str:
    said = [f"{name} {row[name]}" for name in ("running_max", "queued_max") if row[name] is not None]
    if row["starts_max"] is not None:
        said.append(f"starts_max {row['starts_max']} in {row['period_s']:g} s")
    return ", ".join(said)
