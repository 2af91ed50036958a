"""The crash matrix on the scripted agent, with an outside that knows no idempotency keys, and a mailbox."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from app.crashtest import ground as grounds
from app.crashtest.case import play
from app.crashtest.fork import Forks
from app.crashtest.ground import Ground
from app.crashtest.outcome import Case, Outcome
from app.crashtest.place import Server
from app.crashtest.plugin import CrashMatrix, crash_matrix, crash_theatre, rehearsal
from app.crashtest.report import Report
from app.crashtest.subjects import agents_with, bundled
from app.loading import load_agents
from tests.kit import World, Zygote
from tests.outside import Outside
from transactions.local import LocalPostgres

__all__ = ["crash_matrix", "crash_theatre", "rehearsal"]

INPUT = {
    "turns": [
        [["note", {"text": "a"}]],
        [["look", {"text": "b"}], ["whole", {"number": 1}]],
        [["send", {"text": "c"}]],
        [["gated_send", {"text": "d"}], ["tell", {"text": "e"}]],
    ]
}
SAMPLE = 8
JITTER_S = 0.01
NOTES = "select text, count(*) from scripted.notes where run_id = :run_id group by text"


@pytest.fixture(scope="session")
def crash_server(postgres: LocalPostgres) -> Server:
    """The server that this session has anyway."""
    return Server(make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False))


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    with Outside() as running:
        yield running


@pytest.fixture(scope="session")
def mailbox(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("mailbox"), zygote) as running:
        yield running


def told(output: str) -> object:
    """What the model was answered but for the numbers that the outside and the database draw."""
    return [[tool, outcome] for tool, outcome, _ in json.loads(output)]


@pytest.fixture(scope="session")
def matrix(crash_matrix: CrashMatrix, outside: Outside, mailbox: World) -> Any:
    """`matrix(cases=, controls=, ...)` on the scripted agent."""

    def env(run_id: str) -> Mapping[str, str]:
        mail = {"SUREFOOT_SMTP_URL": mailbox.smtp_url, "SUREFOOT_MAIL_FROM": f"{run_id}@example.org"}
        return {**outside.env, **mail}

    def count(run_id: str) -> Mapping[str, int]:
        sent = Counter(s.reference.rpartition(":")[2] for s in list(outside.sent) if s.reference.startswith(run_id))
        return sent | Counter(mail.subject for mail in mailbox.mails() if mail.sender.startswith(run_id))

    def play(**more: Any) -> Report:
        return crash_matrix(
            "scripted",
            INPUT,
            agents="tests.agents.scripted:AGENTS",
            role="manager",
            env=env,
            count=count,
            rows=(NOTES,),
            result=told,
            **more,
        )

    return play


@pytest.fixture(scope="session")
def report(matrix: Any) -> Report:
    """The sample that this suite plays, and every control."""
    return matrix(cases=SAMPLE, seed=1, controls=True)


@pytest.fixture(scope="session")
def errands_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the services of the undisturbed errands keep their files."""
    return tmp_path_factory.mktemp("errands")


@pytest.fixture(scope="session")
def errands_run(crash_server: Server, errands_world: Path) -> Outcome:
    """The bundled errands, undisturbed."""
    return asyncio.run(_undisturbed(crash_server, errands_world, "errands"))


@pytest.fixture(scope="session")
def triage_run(crash_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The bundled triage, undisturbed."""
    return asyncio.run(_undisturbed(crash_server, tmp_path_factory.mktemp("triage"), "ticket_triage"))


async def _undisturbed(server: Server, folder: Path, agent: str) -> Outcome:
    agents = agents_with(agent, None)
    loaded = load_agents(agents)
    async with AsyncExitStack() as stack:
        forks = await stack.enter_async_context(Forks(grounds.environment(agents), folder / "forks.log"))
        subject = await stack.enter_async_context(bundled(agent, forks, folder))
        template = await stack.enter_async_context(grounds.template(server.url, f"{agent}_template", loaded))
        ground = Ground(folder, server.url, template, forks, subject, loaded, grounds.unhurried(JITTER_S))
        return await play(ground, Case("undisturbed", ()), None)
