"""`surefoot migrate` and `surefoot db url|psql`."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from app import wiring
from app.cli.session import database, fail, told
from app.loading import load_agents
from app.settings import Settings

group = typer.Typer(no_args_is_help=True, help="The database itself.")


def migrate() -> None:
    """Create or upgrade the schema, the roles and the tables that agents declare."""
    with told():
        agents = load_agents(Settings.from_env().agents)
        with database(migrated=False) as (_, url):
            wiring.migrate_database(url, agents)
    print("the schema is current")


@group.command("url")
def url() -> None:
    """Print the database's URL. The embedded server runs while some process uses it."""
    with told(), database(migrated=False) as (_, found):
        print(found)


@group.command("psql")
def psql(command: Annotated[str | None, typer.Option("--command", "-c", help="run this SQL and leave")] = None) -> None:
    """Open a client, or run one command, seeing the rows of tenant `default`."""
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
