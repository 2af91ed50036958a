"""What is put to the test: an agent with its input, and the outside world it acts on."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from app.crashtest.fork import ForkFailed, Forks
from app.demo.worlds.service import transaction
from transactions import InvalidInput

_READY_S = 20.0
_LOOK_S = 0.01
_NOTHING: Mapping[str, str] = MappingProxyType({})
REPORT = "monthly_report"
_PUBLISHED = """
select substr(reference, instr(reference, ':') + 1) as effect, count(*) as times from publications
 where substr(reference, 1, length(?1)) = ?1 group by 1"""
_MAILED = "select 'mail' as effect, count(*) as times from mails where instr(recipients, ?1) having count(*) > 0"


def _no_env(_: str) -> Mapping[str, str]:
    return _NOTHING


def _as_it_is(output: object) -> object:
    return output


@dataclass(frozen=True, slots=True)
class Subject:
    """An agent, started with `input`.

    count: how often each effect of a run is in the world, by a name of the effect that is the same for every run; it is
    asked from any thread. role: who approves (None: whoever is asked for). env: what workers of a run are started with.
    agents: `module:ATTRIBUTE,...` as in SUREFOOT_AGENTS. rows: statements with `:run_id`; the rows they find are the
    run's business data, compared with those of the undisturbed run. result: what of the run's output has to be the same
    in every run (numbers that a database or a provider draws are not).
    """

    agent: str
    input: object
    count: Callable[[str], Mapping[str, int]]
    role: str | None = None
    env: Callable[[str], Mapping[str, str]] = _no_env
    agents: str | None = None
    rows: tuple[str, ...] = ()
    result: Callable[[Any], object] = _as_it_is


@asynccontextmanager
async def bundled(agent: str, forks: Forks, folder: Path) -> AsyncGenerator[Subject]:
    """The agent that is delivered with Surefoot, and its world: real services on loopback that keep their own files.

    Raises InvalidInput for another agent: its world is its owner's.
    """
    if agent != REPORT:
        raise InvalidInput(
            f"The outside world of agent {agent!r} is not known here: test it with the pytest fixture `crash_matrix`, "
            f"which takes a function that counts its effects. From the command line: {REPORT}."
        )
    published, mailed = folder / "publishing.sqlite", folder / "mail.sqlite"
    publishing_url = await _service("publishing", published, forks)
    smtp_url = await _service("mailbox", mailed, forks)

    def env(run_id: str) -> Mapping[str, str]:
        return {
            "SUREFOOT_PUBLISHING_URL": publishing_url,
            "SUREFOOT_SMTP_URL": smtp_url,
            "SUREFOOT_TEAM": f"{run_id}@example.org",  # by which the mailbox's file tells runs apart
        }

    def count(run_id: str) -> Mapping[str, int]:
        return _counted(published, _PUBLISHED, f"{run_id}/") | _counted(mailed, _MAILED, f"{run_id}@")

    yield Subject(agent, {"month": "2013-08"}, count, role="manager", env=env)


def _counted(file: Path, sql: str, mark: str) -> dict[str, int]:
    with transaction(file) as connection:
        rows = cast("list[tuple[str, int]]", connection.execute(sql, (mark,)).fetchall())
    return {effect: times for effect, times in rows}  # noqa: C416  rows are sqlite3's own, not tuples


async def _service(name: str, file: Path, forks: Forks) -> str:
    """Start one; its URL. It ends with the warmed process. Raises ForkFailed."""
    log = file.with_suffix(".log")
    module = f"{__name__.removesuffix('.crashtest.subject')}.demo.worlds.{name}"
    await forks.fork(module, ["--port", "0", "--file", str(file)], env=forks.env, log=log)
    for _ in range(int(_READY_S / _LOOK_S)):
        lines = log.read_text().splitlines() if log.exists() else []
        for line in lines:
            if line.startswith("ready "):
                return line.removeprefix("ready ").strip()
        await asyncio.sleep(_LOOK_S)
    raise ForkFailed(f"The {name} service did not start within {_READY_S:g} s: see {log}.")
