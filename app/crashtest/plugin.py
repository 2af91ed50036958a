"""A pytest plugin: the crash matrix for an agent of your own. Installed with Surefoot as the entry point `surefoot`.

    def test_my_agent(crash_matrix):
        crash_matrix("my_agent", {"order": 1}, agents="my_package:my_agent", role="manager", count=shipments)

`shipments(run_id)` answers how often each effect of a run is in the world, such as {"ship": 1}. The call returns the
report, or fails the test with it.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:  # nothing of the product is imported into a test session that does not use it
    from app.crashtest.faults import Kind
    from app.crashtest.report import Report


class CrashMatrix(Protocol):
    """The parameters are those of `Subject` and `Options`; with `controls`, each protection is also taken away."""

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
        cases: int = 20,
        seed: int = 0,
        workers: int = 4,
        kinds: "tuple[Kind, ...]" = ("kill", "stop", "lost-response"),
        controls: bool = False,
    ) -> "Report": ...


@pytest.fixture(scope="session")
def crash_server() -> Iterator[str]:
    """The URL of a Postgres where databases may be made: DATABASE_URL, else an embedded one for this session."""
    from app.crashtest.place import database_server

    folder = Path(tempfile.mkdtemp(prefix="surefoot-crash-"))
    with database_server(os.environ.get("DATABASE_URL"), folder) as url:
        yield url
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def crash_matrix(crash_server: str, tmp_path_factory: pytest.TempPathFactory) -> CrashMatrix:
    """Plays the matrix on an agent, and fails the test with the report when a run did not come out right."""
    from app.crashtest.session import Options, crashtest, given
    from app.crashtest.subject import Subject

    def play(agent: str, input: object, **more: Any) -> "Report":
        played = ("cases", "seed", "workers", "kinds", "controls")
        options: dict[str, Any] = {"cases": 20, "controls": False}
        options |= {name: more.pop(name) for name in played if name in more}
        agents = more.get("agents")
        subject = Subject(agent, input, **{name: value for name, value in more.items() if value is not None})
        folder = tmp_path_factory.mktemp("crashtest")
        session = crashtest(crash_server, folder, given(subject), agents=agents, options=Options(**options))
        report = asyncio.run(session)
        if not report.ok:
            pytest.fail(f"{report}\nlogs: {folder}", pytrace=False)
        return report

    return play
