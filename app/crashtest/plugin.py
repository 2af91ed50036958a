"""A pytest plugin for an agent of your own: the crash matrix with real processes, and rehearsals without any.

Installed with Surefoot as the entry point `surefoot`.

    def test_my_agent(crash_matrix):
        crash_matrix("my_agent", {"order": 1}, agents="my_package:my_agent", role="manager", count=shipments)

`shipments(run_id)` answers how often each effect of a run is in the world, such as {"ship": 1}. The call returns the
report, or fails the test with it. `pytest --crash-replay FAULTS` plays just the case with these faults, and
`--crash-html FOLDER` writes each report as a page.

    def test_ships_once(rehearsal):
        stage = rehearsal(my_agent)
        run = stage.start({"order": 1})
        stage.crash_at("effect.after_send")
        assert stage.finish(run).state == "completed"
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:  # nothing of the product is imported into a test session that does not use it
    from app.crashtest.faults import Kind
    from app.crashtest.place import Server
    from app.crashtest.rehearsal import Stage
    from app.crashtest.report import Report
    from app.crashtest.subject import LookedInto, Person
    from app.crashtest.theatre import Theatre
    from app.settings import Settings
    from steps import DurableAgent


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("surefoot", "the crash matrix of Surefoot")
    group.addoption("--crash-replay", metavar="FAULTS", help="play just the case with these faults, as it printed them")
    group.addoption("--crash-html", metavar="FOLDER", type=Path, help="write each report as a page to this folder")


class CrashMatrix(Protocol):
    """The parameters are those of `Subject` and `Options`; with `controls`, each protection is also taken away.

    replay: the cases to play, as a report prints them (those of `--crash-replay` in their place).
    """

    def __call__(
        self,
        agent: str,
        input: object,
        *,
        count: Callable[[str], Mapping[str, int]],
        agents: str | None = None,
        role: str | None = None,
        env: Callable[[str], Mapping[str, str]] | None = None,
        rows: Sequence[str] = (),
        result: Callable[[Any], object] | None = None,
        at_most_once: "Mapping[str, LookedInto] | None" = None,
        person: "Person" = "approve",
        cases: int = 20,
        seed: int = 0,
        workers: int = 4,
        kinds: "Sequence[Kind] | None" = None,
        replay: Sequence[str] = (),
        controls: bool = False,
    ) -> "Report": ...


class Rehearsal(Protocol):
    """Opens a stage for these agents, given as values or as `module:ATTRIBUTE,...`; it is closed after the test."""

    def __call__(
        self, *given: "DurableAgent[Any]", agents: str | None = None, settings: "Settings | None" = None
    ) -> "Stage": ...


@pytest.fixture(scope="session")
def crash_server() -> "Iterator[Server]":
    """A Postgres where databases may be made: that of DATABASE_URL, else an embedded one for this session."""
    from app.crashtest.place import database_server

    with database_server(os.environ.get("DATABASE_URL"), in_memory=True) as server:
        yield server


@pytest.fixture(scope="session")
def crash_matrix(
    crash_server: "Server", tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> CrashMatrix:
    """Plays the matrix on an agent, and fails the test with the report when a run did not come out right."""
    from app.crashtest.faults import parse
    from app.crashtest.page import write
    from app.crashtest.session import Options, crashtest, given
    from app.crashtest.subject import Subject

    replay: str | None = pytestconfig.getoption("--crash-replay", None)
    pages: Path | None = pytestconfig.getoption("--crash-html", None)
    numbers: Counter[str] = Counter()

    def play(agent: str, input: object, **more: Any) -> "Report":
        played = ("cases", "seed", "workers", "kinds", "controls")
        seeds = more.pop("replay", ()) if replay is None else [replay]
        options: dict[str, Any] = {"cases": 20, "controls": False, "replay": [parse(seed) for seed in seeds]}
        options |= {name: more.pop(name) for name in played if name in more}
        agents = more.get("agents")
        subject = Subject(agent, input, **{name: value for name, value in more.items() if value is not None})
        folder = tmp_path_factory.mktemp("crashtest")
        session = crashtest(crash_server, folder, given(subject), agents=agents, options=Options(**options))
        report = asyncio.run(session)
        if pages is not None:
            numbers[agent] += 1
            name = agent if numbers[agent] == 1 else f"{agent}-{numbers[agent]}"
            write(report, pages / f"{name}.html")
        if not report.ok:
            again = "\n".join(f"play it again with pytest --crash-replay '{one.seed}'" for one in report.failed[:1])
            pytest.fail(f"{report}\nlogs: {folder}\n{again}", pytrace=False)
        return report

    return play


@pytest.fixture(scope="session")
def crash_theatre(crash_server: "Server") -> "Iterator[Theatre]":
    """What rehearsals share: templates of databases, and the thread that directs them."""
    from app.crashtest.theatre import Theatre

    theatre = Theatre(crash_server.url)
    yield theatre
    theatre.close()


@pytest.fixture
def rehearsal(crash_theatre: "Theatre") -> Iterator[Rehearsal]:
    """Everyday tests of an agent in this process, with crashes and time: see `app.crashtest.rehearsal`."""
    from app.crashtest.rehearsal import stage

    with ExitStack() as stages:

        def play(*given: "DurableAgent[Any]", agents: str | None = None, settings: "Settings | None" = None) -> "Stage":
            opened = stage(crash_theatre, *given, agents=agents, settings=settings)
            stages.callback(opened.close)
            return opened

        yield play
