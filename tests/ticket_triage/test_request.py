"""What a triage is started with, and what its scripted model makes of a plain report."""

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo

from app.agents.ticket_triage import ticket_triage
from app.agents.ticket_triage.request import EXAMPLE, REPORTS_MAX, TriageRequest, prompt, reports_in
from app.agents.ticket_triage.script import script
from transactions import InvalidInput

REPORT = {"customer": "a@b.example", "subject": "A question", "text": "What is it?"}


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([], "reports: Tuple should have at least 1 item"),
        ([REPORT] * (REPORTS_MAX + 1), "reports: Tuple should have at most 10 items"),
        ([{**REPORT, "customer": "nobody"}], "reports.0.customer: String should match pattern"),
        ([{**REPORT, "customer": f"{'a' * 200}@b.example"}], "reports.0.customer: String should have at most 200"),
        ([{**REPORT, "subject": "two\nlines"}], "reports.0.subject: String should match pattern"),
        ([{**REPORT, "subject": "  "}], "reports.0.subject: String should match pattern"),
        ([{**REPORT, "subject": "s" * 201}], "reports.0.subject: String should have at most 200"),
        ([{**REPORT, "text": ""}], "reports.0.text: String should have at least 1"),
        ([{**REPORT, "text": "t" * 10_001}], "reports.0.text: String should have at most 10000"),
        ([{**REPORT, "severity": "low"}], "reports.0.severity: Extra inputs are not permitted"),
        ([{"customer": "a@b.example"}], "reports.0.subject: Field required"),
    ],
)
def test_a_report_that_is_not_one_is_refused(reports: object, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ticket_triage.parse_input({"reports": reports})
    assert str(refused.value).startswith(f"The input of ticket_triage is not right: {words}")


def test_reports_in_a_prompt_are_those_that_were_put_in() -> None:
    quoting = TriageRequest.model_validate({"reports": [{**REPORT, "text": prompt(EXAMPLE)}]})
    for request in (EXAMPLE, quoting):
        assert reports_in(prompt(request)) == request.reports


def test_a_plain_report_is_answered_and_has_its_ticket_and_nobody_is_asked_or_woken() -> None:
    answers: dict[str, Any] = {"earlier_tickets": [], "known_incidents": [], "save_triage": "queued", "open_ticket": 7}
    request = TriageRequest.model_validate({"reports": [REPORT]})
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart(prompt(request))])]
    called: list[str] = []
    for _ in range(4):
        response = script(messages, info())
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        called += [call.tool_name for call in calls]
        returns = [ToolReturnPart(call.tool_name, answers[call.tool_name], call.tool_call_id) for call in calls]
        messages += [response, ModelRequest(returns)]
    assert called == [*answers]
    assert isinstance(messages[-2], ModelResponse)
    assert messages[-2].text == "1 reports triaged: 1 tickets opened, 0 escalated, 0 paged."


def info() -> AgentInfo:
    return AgentInfo(
        function_tools=[],
        allow_text_output=True,
        output_tools=[],
        model_settings=None,
        model_request_parameters=ModelRequestParameters(),
        instructions=None,
    )
