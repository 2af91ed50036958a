"""Preconditions of a tool, checked by SQL in the transaction that claims the call: the order is the application's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steps.declaring import ToolError
from transactions import Tx

_SUCCEEDED = """
select tool from surefoot.actions
 where action_id in (select a.action_id from surefoot.actions a where a.run_id = :run_id and a.undoes is null
                     union select c.action_id from surefoot.action_calls c where c.run_id = :run_id)
   and tool = any(:tools) and state = 'SUCCEEDED'
 order by action_id for share"""


@dataclass(frozen=True, slots=True)
class After:
    """Made by `after(...)`."""

    tools: Sequence[str]

    async def __call__(self, tx: Tx[Any], **_: Any) -> str | None:
        """What of it is missing, in words for the model; what it has read stays so until the commit."""
        rows = await tx.execute(_SUCCEEDED, run_id=tx.run.run_id, tools=list(self.tools))
        missing = [tool for tool in self.tools if tool not in {row["tool"] for row in rows}]
        return f"not before {' and '.join(missing)} has succeeded in this run" if missing else None


def after(*tools: str) -> After:
    """For `requires=`: this run has an action of each of these tools that succeeded, its own or shared by its key.

    Transactions and effects only: a read leaves no action. Raises ToolError.
    """
    if not tools or len(set(tools)) != len(tools):
        raise ToolError(f"after{tools!r}: name one or more tools, each once, such as after('save_report').")
    return After(tools)
