"""`surefoot tokens`, `surefoot principals` and `surefoot tenants`: who may do what."""

from datetime import timedelta
from typing import Annotated

import typer

from app.acting import Acting
from app.cli.session import ask

tokens = typer.Typer(no_args_is_help=True, help="Tokens of principals: for the API, and for SUREFOOT_TOKEN.")
principals = typer.Typer(no_args_is_help=True, help="Who may do what.")
tenants = typer.Typer(no_args_is_help=True, help="Tenants of this deployment; none sees anything of another.")

Name = Annotated[str, typer.Argument(help="the principal's name")]
Of = Annotated[str | None, typer.Option("--tenant", help="its tenant; default: your own")]
Roles = Annotated[
    list[str],
    typer.Option("--role", help="viewer, operator, approver, admin, or one of your own such as manager; repeat it"),
]
_TIME = "%Y-%m-%d %H:%M:%S %Z"


@tokens.command("create")
def create(
    principal: Name,
    role: Roles = [],  # noqa: B006  typer reads it, nothing writes it
    scope: Annotated[list[str], typer.Option(help="only this of the principal's roles; repeat it")] = [],  # noqa: B006
    days: Annotated[float, typer.Option(min=0.0001, max=366, help="after how many days it expires")] = 90,
    tenant: Of = None,
) -> None:
    """Make a token and print it, this once. With --role the principal is made first, or given these roles."""

    async def make(who: Acting) -> str:
        if role:
            await who.set_principal(principal, roles=role, tenant=tenant)
        return await who.create_token(principal, scopes=scope or None, expires=timedelta(days=days), tenant=tenant)

    print(ask(make, owner_may=True))


@tokens.command("list")
def list_tokens(tenant: Of = None) -> None:
    """Whose tokens there are, how they stand and when they were last used."""
    rows = ask(lambda who: who.tokens(tenant=tenant), owner_may=True)
    for row in rows:
        used = "never used" if row["last_used_at"] is None else f"last used {row['last_used_at'].strftime(_TIME)}"
        scopes = "" if row["scopes"] is None else f", only {', '.join(row['scopes'])}"
        print(f"{row['token_id']}  {row['principal']}{scopes}  {row['standing']}  {used}")
        print(f"  made by {row['created_by']} at {row['created_at'].strftime(_TIME)}, ", end="")
        print(f"expires {row['expires_at'].strftime(_TIME)}")
    if not rows:
        print("no tokens")


@tokens.command("revoke")
def revoke(token_id: Annotated[str, typer.Argument(help="its id, as `list` shows it")], tenant: Of = None) -> None:
    """From now on it opens nothing."""
    print(f"revoked: it was {ask(lambda who: who.revoke_token(token_id, tenant=tenant), owner_may=True)}'s")


@principals.command("set")
def set_principal(principal: Name, role: Roles, tenant: Of = None) -> None:
    """Make a principal with these roles, or give it these instead of those it has."""
    ask(lambda who: who.set_principal(principal, roles=role, tenant=tenant), owner_may=True)
    print(f"{principal} has now: {', '.join(sorted(set(role)))}")


@principals.command("list")
def list_principals(tenant: Of = None) -> None:
    """Names and roles."""
    rows = ask(lambda who: who.principals(tenant=tenant), owner_may=True)
    for row in rows:
        disabled = "" if row["disabled_at"] is None else f"  disabled since {row['disabled_at'].strftime(_TIME)}"
        print(f"{row['name']}  {', '.join(row['roles'])}  (by {row['changed_by']}){disabled}")
    if not rows:
        print("no principals")


@principals.command("disable")
def disable(principal: Name, tenant: Of = None) -> None:
    """It may nothing any more, and what it approved and was not done yet does not count."""
    ask(lambda who: who.disable_principal(principal, tenant=tenant), owner_may=True)
    print(f"disabled {principal}")


@principals.command("enable")
def enable(principal: Name, tenant: Of = None) -> None:
    """It has its roles again."""
    ask(lambda who: who.enable_principal(principal, tenant=tenant), owner_may=True)
    print(f"enabled {principal}")


@tenants.command("create")
def create_tenant(tenant: Annotated[str, typer.Argument(help="its name")]) -> None:
    """Make a tenant; its first principal: `surefoot tokens create NAME --role admin --tenant TENANT`."""
    ask(lambda who: who.create_tenant(tenant), owner_may=True)
    print(f"tenant {tenant} is there")


@tenants.command("list")
def list_tenants() -> None:
    """Every tenant."""
    for row in ask(lambda who: who.tenants(), owner_may=True):
        print(f"{row['tenant']}  {row['principals']} principals, since {row['created_at'].strftime(_TIME)}")
