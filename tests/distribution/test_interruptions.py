"""An interruption of whose end no other test tells: a model that cannot be asked."""

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from steps import durability


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
