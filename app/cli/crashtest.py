"""`surefoot crashtest`: kill and stop the workers of an agent at every point, and judge what became of its runs."""

import asyncio
import json as json_format
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from app.cli.session import told
from app.settings import Settings
from transactions import InvalidInput

Agent = Annotated[str, typer.Argument(help="the agent to test")]
Cases = Annotated[int, typer.Option(min=0, help="so many cases whose faults struck an unfinished run")]
Seed = Annotated[int, typer.Option(help="which cases are drawn")]
Workers = Annotated[int, typer.Option(min=1, help="cases at the same time")]
Kinds = Annotated[str, typer.Option("--faults", help="kinds of faults: kill, stop, lost-response")]
Json = Annotated[Path | None, typer.Option("--json", help="write the report to this file")]
Replay = Annotated[str | None, typer.Option(help="play just the case with these faults, as it printed them")]
Controls = Annotated[bool, typer.Option(help="also take each protection away and require that it is noticed")]


def crashtest(
    agent: Agent = "monthly_report",
    cases: Cases = 100,
    seed: Seed = 0,
    workers: Workers = 4,
    faults: Kinds = "kill,stop,lost-response",
    json: Json = None,
    replay: Replay = None,
    controls: Controls = True,
) -> None:
    """Run an agent on real workers and strike them at every point; compare each run with an undisturbed one.

    It works on databases of its own: clones on the server of DATABASE_URL, else on an embedded Postgres that is thrown
    away at the end.
    """
    with told():
        from app.crashtest.faults import KINDS, Kind, parse
        from app.crashtest.place import database_server
        from app.crashtest.session import Options, crashtest
        from app.crashtest.subject import bundled

        asked = {kind.strip() for kind in faults.split(",")}
        kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if asked.issuperset((kind,)))
        if unknown := asked.difference(KINDS):
            raise InvalidInput(f"--faults {', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}.")
        settings = Settings.from_env()
        options = Options(
            cases=cases,
            seed=seed,
            workers=workers,
            kinds=kinds,
            replay=None if replay is None else parse(replay),
            controls=controls,
            say=lambda line: print(line, flush=True),
        )
        folder = Path(tempfile.mkdtemp(prefix="surefoot-crashtest-"))
        with database_server(settings.database_url, folder) as url:
            report = asyncio.run(
                crashtest(url, folder, lambda f, p: bundled(agent, f, p), agents=settings.agents, options=options)
            )
        print(report)
        if json is not None:
            json.write_text(json_format.dumps(report.as_json(), indent=2) + "\n")
        if not report.ok:
            print(f"logs of every worker: {folder}")
            raise typer.Exit(1)
        shutil.rmtree(folder, ignore_errors=True)
