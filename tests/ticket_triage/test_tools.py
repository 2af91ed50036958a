"""Bodies of the triage's effects where a service, a row or a model is not as it should be."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import ModelRetry

from app.agents.ticket_triage.request import EXAMPLE
from app.agents.ticket_triage.services import Deps
from app.agents.ticket_triage.tools import escalate, escalated, open_ticket, page
from steps import Absent, Action, Answer, Found, HttpApi, NotSent, Refused, Unsure
from transactions import DEFAULT_TENANT, ActionId, Run, RunId


class Told(HttpApi):
    """An API that always answers this, and counts how often it was called."""

    def __init__(self, body: Any) -> None:
        super().__init__("http://127.0.0.1:1")
        self.body, self.calls = body, 0

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        self.calls += 1
        return Answer(200, self.body)


def action(api: HttpApi, row: dict[str, Any] | None = None, **bound: str) -> Action[Deps]:
    async def query(sql: str, /, **parameters: object) -> Sequence[Any]:
        if row is None:
            raise ConnectionError("the database is away")
        return [row]

    run = Run(RunId("r"), DEFAULT_TENANT, "ticket_triage", EXAMPLE.model_dump(mode="json"), "p", query)
    return Action(Deps(EXAMPLE, run, api, api, api), ActionId("r/7/0:escalate"), 1, 1, run, bound)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([], Absent({"searched_for": "r/7/0:escalate"})),
        ([{"id": 7}], Found(7, evidence=[{"id": 7}])),
        ([{"id": 7}, {"id": 8}], Unsure([{"id": 7}, {"id": 8}])),
    ],
)
async def test_a_search_that_finds_two_issues_cannot_tell(found: Any, verdict: object) -> None:
    assert await escalated(action(Told(found)), 1) == verdict


async def test_what_is_low_is_not_escalated_and_what_is_not_critical_wakes_nobody() -> None:
    api = Told({"id": 1})
    with pytest.raises(Refused, match="only what is high or critical is escalated"):
        await escalate(action(api, severity="low"), 1)
    with pytest.raises(Refused, match="nobody is woken for it"):
        await page(action(api, {"severity": "high", "summary": "s"}), 1)
    with pytest.raises(NotSent, match="could not be read"):
        await page(action(api), 1)
    assert api.calls == 0


@pytest.mark.parametrize("number", [0, 4, -1])
async def test_a_report_that_is_not_there_is_the_models_to_correct(number: int) -> None:
    with pytest.raises(ModelRetry, match=f"no report {number}: they are numbered from 1 to 3"):
        await open_ticket(action(Told({"id": 1})), number, "s")


@pytest.mark.parametrize("body", [None, "made", {"number": 1}, {"id": "x"}])
async def test_an_answer_without_a_number_is_no_result(body: Any) -> None:
    with pytest.raises(ValueError, match="validation error"):
        await open_ticket(action(Told(body)), 1, "s")
