"""Interruptions of whose end no other test tells: a deploy, and a model that cannot be asked."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from steps import durability
from tests.kit import World, Zygote
from tests.outside import Outside
from tests.stage import Stage


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Outside() as running:
        yield running


@pytest.fixture
def stage(database_url: str, outside: Outside, tmp_path: Path, zygote: Zygote) -> Iterator[Stage]:
    with Stage(database_url, World(tmp_path), outside, tmp_path, zygote) as running:
        yield running


def test_a_worker_that_is_told_to_stop_hands_its_run_on(stage: Stage, outside: Outside) -> None:
    first = stage.working()
    turns = [[("note", {"text": str(n)})] for n in range(3)]
    with outside.held():
        run_id = stage.script([("send", {"text": "x"})], *turns)
        outside.until_sent(1)
        first.signal(signal.SIGTERM)
        second = stage.working()
    assert first.until_it_dies() == 0
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in outside.sent] == ["x"]
    assert [note["text"] for note in stage.notes(run_id)] == ["0", "1", "2"]
    by = stage.rows(
        "select distinct worker_id from surefoot.steps where run_id = %s and name like 'tool:note%%'", run_id
    )
    assert [f"-{second.pid}-" in row["worker_id"] for row in by] == [True]


class Provider:
    """A model's provider that answers with these statuses, one after the other."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)

    async def __call__(self) -> str:
        status = self.statuses.pop(0)
        if status != 200:
            raise ModelHTTPError(status, "m")
        return "said"


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None: ...

    monkeypatch.setattr(durability.asyncio, "sleep", at_once)


async def test_a_model_that_cannot_be_asked_for_a_while_is_asked_again(no_pauses: None) -> None:
    assert await durability._outcome(Provider(503, 429, 500, 200)) == {"ok": "said"}


async def test_a_model_that_cannot_be_asked_for_good_fails_the_run_with_words(no_pauses: None) -> None:
    for statuses in ((401,), (503,) * 5):
        provider = Provider(*statuses)
        outcome = await durability._outcome(provider)
        assert provider.statuses == []
        assert outcome == {"error": f"ModelHTTPError: status_code: {statuses[-1]}, model_name: m, body: None"}
