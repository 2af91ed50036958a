"""The crash matrix on the scripted agent, with an outside that knows no idempotency keys, and a mailbox."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import make_url

from app.crashtest.plugin import CrashMatrix, crash_matrix
from app.crashtest.report import Report
from tests.kit import World, Zygote
from tests.outside import Outside
from transactions.local import LocalPostgres

__all__ = ["crash_matrix"]

INPUT = {
    "turns": [
        [["note", {"text": "a"}]],
        [["look", {"text": "b"}], ["whole", {"number": 1}]],
        [["send", {"text": "c"}]],
        [["gated_send", {"text": "d"}], ["tell", {"text": "e"}]],
    ]
}
SAMPLE = 12
NOTES = "select text, count(*) from scripted.notes where run_id = :run_id group by text"


@pytest.fixture(scope="session")
def crash_server(postgres: LocalPostgres) -> str:
    """The server that this session has anyway."""
    return make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)


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
