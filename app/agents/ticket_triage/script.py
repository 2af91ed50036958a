"""The scripted model: it decides from the messages it has seen and holds no state of its own."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_core import to_jsonable_python

from app.agents.ticket_triage.request import Report, reports_in
from app.agents.ticket_triage.tools import ESCALATED

_CRITICAL = re.compile(r"\b(down|outage|lost|breach)\b", re.IGNORECASE)
_SUMMARY_CHARACTERS_MAX = 500
_AT_MOST = re.compile(r"at most (\d+) characters")
_SHORT_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call about a report and what it was answered. `outcome`: `retried` when it was sent back to be corrected."""

    tool: str
    report: int
    outcome: str
    answer: Any


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    """The next response of the triage."""
    reports = dict(enumerate(_reports(messages), start=1))
    asked = list(_asked(messages))
    calls = _next_calls(reports, asked)
    return ModelResponse(parts=calls or [TextPart(_summary(reports, asked))])


def _next_calls(reports: dict[int, Report], asked: Sequence[_Asked]) -> list[ToolCallPart]:
    """What is next to do, in the order of the task; nothing when all is done."""
    tools = {one.tool for one in asked}
    if "earlier_tickets" not in tools:
        return [ToolCallPart(tool, {"report": n}) for n in reports for tool in ("earlier_tickets", "known_incidents")]
    severities = {n: _severity(report, _answer(asked, "known_incidents", n)) for n, report in reports.items()}
    if "save_triage" not in tools:
        return [ToolCallPart("save_triage", _triage(n, report, severities[n], asked)) for n, report in reports.items()]
    for n, report in reports.items():
        subject = f"[{severities[n]}] {report.subject}"
        last = _last(asked, "open_ticket", n)
        if last is None:
            return [ToolCallPart("open_ticket", {"report": n, "subject": subject})]
        if last.outcome == "retried":
            return [ToolCallPart("open_ticket", {"report": n, "subject": _shortened(subject, str(last.answer))})]
    for n in reports:
        if severities[n] in ESCALATED and _last(asked, "escalate", n) is None:
            return [ToolCallPart("escalate", {"report": n})]  # alone, for what is behind a denied call is denied too
    if "page" not in tools:
        return [ToolCallPart("page", {"report": n}) for n in reports if severities[n] == "critical"]
    return []


def _severity(report: Report, incidents: Sequence[Any]) -> str:
    if _CRITICAL.search(f"{report.subject}\n{report.text}"):
        return "critical"
    return "high" if incidents else "low"


def _triage(n: int, report: Report, severity: str, asked: Sequence[_Asked]) -> dict[str, Any]:
    incidents = _answer(asked, "known_incidents", n)
    earlier = len(_answer(asked, "earlier_tickets", n))
    incident = incidents[0]["incident"] if incidents else None
    known = f" It is known to us as {incident}: {incidents[0]['title']}." if incidents else ""
    before = f" You have {earlier} earlier tickets with us." if earlier else ""
    return {
        "report": n,
        "severity": severity,
        "summary": f"{report.subject}{f' ({incident})' if incident else ''}"[:_SUMMARY_CHARACTERS_MAX],
        "reply": f"Thank you for your report. We rate it as {severity}.{known}{before}",
        "incident": incident,
    }


def _shortened(subject: str, said: str) -> str:
    """The subject as the desk takes it: it has said how long it may be."""
    limit = _AT_MOST.search(said)
    return subject[: int(limit[1]) if limit else _SHORT_CHARACTERS].rstrip()


def _reports(messages: Sequence[ModelMessage]) -> Sequence[Report]:
    assert isinstance(messages[0], ModelRequest)
    prompt = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    return reports_in(str(prompt.content))


def _asked(messages: Sequence[ModelMessage]) -> Iterator[_Asked]:
    """Every answered call in order of the answers."""
    calls: dict[str, ToolCallPart] = {}
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolCallPart):
            calls[part.tool_call_id] = part
        elif isinstance(part, ToolReturnPart):
            report = calls[part.tool_call_id].args_as_dict()["report"]
            yield _Asked(part.tool_name, report, part.outcome, to_jsonable_python(part.content))


def _last(asked: Sequence[_Asked], tool: str, report: int) -> _Asked | None:
    return next((one for one in reversed(asked) if (one.tool, one.report) == (tool, report)), None)


def _answer(asked: Sequence[_Asked], tool: str, report: int) -> Any:
    last = _last(asked, tool, report)
    return last.answer if last is not None and last.outcome == "success" else []


def _summary(reports: dict[int, Report], asked: Sequence[_Asked]) -> str:
    done = dict.fromkeys(("open_ticket", "escalate", "page"), 0)
    refused: list[str] = []
    for one in asked:
        if one.tool in done:
            done[one.tool] += one.outcome == "success"
            if one.outcome not in ("success", "retried"):
                refused.append(f"{one.tool} of report {one.report}: {one.answer}")
    counts = f"{done['open_ticket']} tickets opened, {done['escalate']} escalated, {done['page']} paged."
    return " ".join([f"{len(reports)} reports triaged: {counts}", *refused])
