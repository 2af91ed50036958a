"""What touches the model and the tools. See README.md beside this file."""

from steps.declaring import ToolError
from steps.durable import DurableAgent, RunLimits, durable
from steps.http import Answer, ApiError, ApiUnanswered, HttpApi
from steps.kinds import (
    Absent,
    Action,
    Approval,
    Escalation,
    Found,
    KeyConflict,
    NotAllowed,
    NotSent,
    Refused,
    Unsure,
    from_matches,
)
from steps.models import model_from_env, tool_returns, turns_so_far
from steps.requires import after
from steps.state import RunRecord
from steps.tools import Tools

__all__ = [
    "Absent",
    "Action",
    "Answer",
    "ApiError",
    "ApiUnanswered",
    "Approval",
    "DurableAgent",
    "Escalation",
    "Found",
    "HttpApi",
    "KeyConflict",
    "NotAllowed",
    "NotSent",
    "Refused",
    "RunLimits",
    "RunRecord",
    "ToolError",
    "Tools",
    "Unsure",
    "after",
    "durable",
    "from_matches",
    "model_from_env",
    "tool_returns",
    "turns_so_far",
]
