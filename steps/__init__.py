"""What touches the model and the tools. See README.md beside this file."""

from steps.durable import DurableAgent, RunLimits, durable
from steps.kinds import Absent, Action, Approval, Found, NotSent, Refused, Unsure
from steps.models import model_from_env, tool_returns, turns_so_far
from steps.tools import ToolError, Tools

__all__ = [
    "Absent",
    "Action",
    "Approval",
    "DurableAgent",
    "Found",
    "NotSent",
    "Refused",
    "RunLimits",
    "ToolError",
    "Tools",
    "Unsure",
    "durable",
    "model_from_env",
    "tool_returns",
    "turns_so_far",
]
