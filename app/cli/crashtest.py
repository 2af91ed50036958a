"""`surefoot crashtest`: kill and stop the workers of an agent at every point, and judge what became of its runs."""

import asyncio
import json as json_format
import os
import shutil
import tempfile
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.session import told
from app.settings import Settings
from transactions import InvalidInput

if TYPE_CHECKING:  # imported when it is used, so that every other command starts fast
    from app.crashtest.session import Options

DEFAULT = "monthly_report"
Agent = Annotated[str, typer.Argument(help="the agent to test: monthly_report, ticket_triage or errands")]
Cases = Annotated[int, typer.Option(min=0, help="so many cases whose faults struck an unfinished run")]
Seed = Annotated[int, typer.Option(help="which cases are drawn")]
Workers = Annotated[int, typer.Option(min=1, help="cases at the same time")]
Kinds = Annotated[str | None, typer.Option("--faults", help="kinds of faults, in place of all that there are")]
Json = Annotated[Path | None, typer.Option("--json", help="write the report to this file")]
Html = Annotated[Path | None, typer.Option("--html", help="write the report to this file, as a page with charts")]
Replay = Annotated[list[str] | None, typer.Option(help="play just the cases with these faults, as they printed them")]
Plan = Annotated[
    Literal["mixed", "exhaustive", "moments"],
    typer.Option(help="mixed: so many cases; exhaustive: every single fault; moments: kills at random moments"),
]
Person = Annotated[Literal["approve", "reject", "cancel"], typer.Option(help="what is said to approvals")]
Against = Annotated[
    list[str] | None,
    typer.Option(help="compare frameworks instead: plain, pydantic-ai-dbos, langgraph, surefoot, all; see the README"),
]
Systems = Annotated[bool, typer.Option("--systems", help="every fault on every kind of system; checks the README")]
Write = Annotated[bool, typer.Option("--write", help="with --systems: write its table into outbox/README.md")]
Controls = Annotated[bool, typer.Option(help="also take each protection away and require that it is noticed")]


def crashtest(
    agent: Agent = DEFAULT,
    cases: Cases = 100,
    seed: Seed = 0,
    workers: Workers = 4,
    faults: Kinds = None,
    plan: Plan = "mixed",
    person: Person = "approve",
    json: Json = None,
    html: Html = None,
    replay: Replay = None,
    controls: Controls = True,
    against: Against = None,
    systems: Systems = False,
    write: Write = False,
) -> None:
    """Run an agent on real workers and strike them at every point; compare each run with an undisturbed one.

    It works on databases of its own: clones on the server of DATABASE_URL, else on an embedded Postgres that is thrown
    away at the end.
    """
    if against:
        if html is not None:
            raise typer.BadParameter("a comparison is written as JSON: use --json", param_hint="--html")
        _compare(agent, against, workers=workers, replay=replay, json=json)
        return
    if write and not systems:
        raise typer.BadParameter("it belongs to --systems", param_hint="--write")
    if systems:
        if against or replay or json is not None or html is not None:
            raise typer.BadParameter("it plays a plan of its own and writes no report", param_hint="--systems")
        _systems(workers=workers, write=write)
        return
    with told():
        from app.crashtest.faults import kinds_of, parse
        from app.crashtest.session import Options

        _can_be_written(json, html)
        options = Options(
            cases=cases,
            seed=seed,
            workers=workers,
            kinds=kinds_of(faults) if faults else None,
            plan=plan,
            replay=[parse(seed) for seed in replay or ()],
            controls=controls,
            say=_say,
        )
        _play(agent, options, person, json=json, html=html)


def _play(
    agent: str,
    options: "Options",
    person: Literal["approve", "reject", "cancel"],
    *,
    json: Path | None,
    html: Path | None,
) -> None:
    from app.crashtest.page import write
    from app.crashtest.place import database_server
    from app.crashtest.session import crashtest
    from app.crashtest.subjects import agents_with, bundled

    settings = Settings.from_env()
    folder = Path(tempfile.mkdtemp(prefix="surefoot-crashtest-"))
    with database_server(settings.database_url, in_memory=True) as server:
        agents = agents_with(agent, settings.agents)
        opens = partial(bundled, agent, person=person)
        report = asyncio.run(crashtest(server, folder, opens, agents=agents, options=options))
    print(report)
    if json is not None:
        json.write_text(json_format.dumps(report.as_json(), indent=2) + "\n")
    if html is not None:
        write(report, html)
    if not report.ok:
        print(f"logs of every worker: {folder}")
        raise typer.Exit(1)
    shutil.rmtree(folder, ignore_errors=True)


def _can_be_written(*files: Path | None) -> None:
    """Asked at the start, so that nothing is lost after an hour. Raises InvalidInput."""
    for file in files:
        if file is not None and (file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK)):
            raise InvalidInput(f"{file} cannot be written: give a file in a folder that exists.")


def _say(line: str) -> None:
    print(line, flush=True)


def _systems(*, workers: int, write: bool) -> None:
    """Ends with 1 when something is wrong, or when the README says otherwise."""
    with told():
        from app.crashtest import systems as matrix
        from app.crashtest.place import database_server

        folder = Path(tempfile.mkdtemp(prefix="surefoot-systems-"))
        with database_server(Settings.from_env().database_url, in_memory=True) as server:
            table = asyncio.run(matrix.systems(server, folder, workers=workers, say=_say))
        print(f"\n{table}\n")
        readme = Path(str(files("outbox").joinpath("README.md")))
        if write and not table.wrong:
            readme.write_text(matrix.write(readme.read_text(), table))
        said = matrix.written(readme.read_text())
        wrong = [*table.wrong, *([] if said == str(table) else [f"{readme} says otherwise: give --write"])]
        for line in wrong:
            print(line)
        if wrong:
            print(f"logs of every worker: {folder}")
            raise typer.Exit(1)
        shutil.rmtree(folder, ignore_errors=True)


def _compare(agent: str, names: list[str], *, workers: int, replay: list[str] | None, json: Path | None) -> None:
    """A measurement: it ends with 1 only when it could not be played, or Surefoot itself doubled or lost something."""
    with told():
        from app.crashtest.against.contenders import chosen
        from app.crashtest.against.match import compare, windows
        from app.crashtest.place import database_server

        if agent != DEFAULT:
            raise InvalidInput(f"--against plays a small agent of its own: leave out {agent}.")
        _can_be_written(json)
        contenders, played = chosen(names), windows(replay or ())
        folder = Path(tempfile.mkdtemp(prefix="surefoot-against-"))
        with database_server(Settings.from_env().database_url) as server:
            table = asyncio.run(compare(server.url, folder, contenders, played, workers=workers, say=_say))
        print(f"\n{table}")
        if json is not None:
            json.write_text(json_format.dumps(table.as_json(), indent=2) + "\n")
        if not table.ok:
            print(f"logs of every process: {folder}")
            raise typer.Exit(1)
        shutil.rmtree(folder, ignore_errors=True)
