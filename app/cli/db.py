"""`surefoot migrate` and `surefoot db url|psql`."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from app import wiring
from app.cli.session import ask, database, fail, told
from app.loading import load_agents
from app.settings import Settings
from transactions.logins import Kind, Login

group = typer.Typer(no_args_is_help=True, help="The database itself.")


def migrate(
    api_login: Annotated[str | None, typer.Option(help="a login of the database that may serve the API only")] = None,
    worker_login: Annotated[str | None, typer.Option(help="a login of the database that may be a worker only")] = None,
) -> None:
    """Create or upgrade the schema, the roles and the tables that agents declare."""
    given: tuple[tuple[str | None, Kind], ...] = ((api_login, "api"), (worker_login, "worker"))
    logins = [Login(name, kind) for name, kind in given if name is not None]
    with told():
        agents = load_agents(Settings.from_env().agents)
        with database(migrated=False) as (_, url):
            wiring.migrate_database(url, agents, logins)
    print("the schema is current")
    for login in logins:
        print(f"{login.name} may {'serve the API' if login.kind == 'api' else 'be a worker'}, and nothing else")


@group.command("restored")
def restored(
    reason: Annotated[str, typer.Option(help="which backup, and why")] = "said to be restored",
) -> None:
    """Say that this database was restored, before workers start: what may have been done is looked for first."""
    begun = ask(lambda who: who.restored(reason=reason), owner_may=True)
    print(f"epoch {begun.epoch} began: {begun.runs} open runs, {begun.effects} effects to look for first")
    print(f"{begun.workers} workers have to start again" if begun.workers else "no worker was live")


@group.command("url")
def url() -> None:
    """Print the database's URL. The embedded server runs while some process uses it."""
    with told(), database(migrated=False) as (_, found):
        print(found)


@group.command("psql")
def psql(command: Annotated[str | None, typer.Option("--command", "-c", help="run this SQL and leave")] = None) -> None:
    """Open a client, or run one command, as the database's own login: the API's sees tenant `default`, others all."""
    with told():
        settings = Settings.from_env()
        found, local = wiring.open_database(settings)
        try:
            client = shutil.which("psql") or _beside(local.bindir if local else None)
            if client is None:
                fail("No psql was found: install a Postgres client, or surefoot[local], which brings one.")
            options = f"{os.environ.get('PGOPTIONS', '')} -c surefoot.tenant=default".strip()
            arguments = ["-c", command] if command is not None else []
            done = subprocess.run([client, found, *arguments], env={**os.environ, "PGOPTIONS": options}, check=False)
        finally:
            if local is not None:
                local.leave()
    raise typer.Exit(done.returncode)


def _beside(bindir: Path | None) -> str | None:
    return None if bindir is None else shutil.which("psql", path=str(bindir))
