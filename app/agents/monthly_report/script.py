"""The scripted model: it decides from the messages it has seen and holds no state of its own."""

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from pydantic_core import to_jsonable_python

from steps import tool_returns, turns_so_far


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    """The next response of the monthly report."""
    returns = tool_returns(messages)

    def result(tool: str) -> Any:
        return to_jsonable_python(returns[tool].content)

    match turns_so_far(messages):
        case 0:
            return _calls(ToolCallPart("load_data", {}))
        case 1:
            data_set = result("load_data")["data_set"]
            return _calls(
                ToolCallPart("monthly_figures", {"data_set": data_set}),
                ToolCallPart("supporting_documents", {"data_set": data_set}),
            )
        case 2:
            commentary = _commentary(result("monthly_figures"), result("supporting_documents"))
            return _calls(
                ToolCallPart("render_report", {"data_set": result("load_data")["data_set"], "commentary": commentary})
            )
        case 3:
            commentary = _commentary(result("monthly_figures"), result("supporting_documents"))
            return _calls(
                ToolCallPart(
                    "save_report",
                    {
                        "data_set": result("load_data")["data_set"],
                        "commentary": commentary,
                        "sha256": result("render_report")["sha256"],
                    },
                )
            )
        case 4:
            saved = result("save_report")
            report = {"artifact": saved["name"], "version": saved["version"]}
            return _calls(
                ToolCallPart("publish_report", report),
                ToolCallPart("tell_team", {**report, "sha256": saved["sha256"]}),
            )
        case _:
            return ModelResponse(parts=[TextPart(_summary(messages))])


def _calls(*calls: ToolCallPart) -> ModelResponse:
    return ModelResponse(parts=list(calls))


def _commentary(figures: dict[str, Any], documents: list[dict[str, Any]]) -> str:
    cited = ", ".join(f"{document['id']} ({document['sha256'][:12]})" for document in documents) or "none were found"
    return f"The figures of {figures['month']['month']} are set against the months before it. Documents cited: {cited}."


def _summary(messages: list[ModelMessage]) -> str:
    returns = tool_returns(messages)
    outcomes = [(tool, returns[tool]) for tool in ("publish_report", "tell_team") if tool in returns]
    refused = [f"{tool}: {part.content}" for tool, part in outcomes if part.outcome != "success"]
    if refused:
        return "The report is saved and was not published. " + " ".join(refused)
    return "The report is published and the team has been told."
