"""Every tool call of a segment passes here, and is exactly one step, opened in call order.

Outcomes cross the step as values, so that a replay takes the same way as the first execution: `value`, `failed` (told
to the model), `retry` (the model corrects its call), `raised` (the run fails), `defer` (the run waits).
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from steps.calls import Call
from steps.journal import Done
from steps.outcomes import read_freely
from steps.seat import Seat
from steps.spec import Spec
from steps.tools import METADATA_KEY
from transactions import UNSTORABLE, ActionId, canonical_json, is_storable
from transactions.actions import Request

D = TypeVar("D")
T = TypeVar("T")
_log = logging.getLogger("surefoot.tools")


class ToolRaised(Exception):
    """A tool's body raised: the run fails with its words, the same at every replay."""


@dataclass
class DurableToolset(WrapperToolset[D]):
    """Wraps the agent's assembled toolset for one execution of a segment."""

    seat: Seat

    async def get_tools(self, ctx: RunContext[D]) -> dict[str, ToolsetTool[D]]:
        """The tools whose kind is known: declared ones, and those that announce themselves as read-only."""
        tools = await super().get_tools(ctx)
        kept = {name: tool for name, tool in tools.items() if _is_known(tool)}
        for name in tools.keys() - kept.keys() - self.seat.withheld:
            self.seat.withheld.add(name)
            _log.warning("tool %s is withheld from %s: it does not say it only reads", name, self.seat.agent)
        if self.seat.turns.artifacts:  # the agent's own tools go before ours of the same name
            kept = {**await self.seat.built_in.get_tools(ctx), **kept}
        return kept

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[D], tool: ToolsetTool[D]) -> Any:
        declared = (tool.tool_def.metadata or {}).get(METADATA_KEY)
        if declared is None:
            return await super().call_tool(name, tool_args, ctx, tool)  # a read-only MCP call is a step of the engine
        spec = self.seat.specs[declared["tool"]]
        assert ctx.tool_call_id is not None
        request = self._request(spec, ctx.tool_call_id)
        inner = self.seat.built_in if tool.toolset is self.seat.built_in else self.wrapped
        body = self._body(spec, request, tool_args, ctx, lambda: inner.call_tool(name, tool_args, ctx, tool))
        outcome = cast("dict[str, Any]", await self.seat.journal.step(f"tool:{name}:{request.action_id}", body))
        return self._answer(outcome, request)

    def _request(self, spec: Spec, call_id: str) -> Request:
        """What is asked for, under the call's own id; its action may have another one, by its business key."""
        position, call = self.seat.turns.call(call_id)
        arguments = cast(JsonValue, call.args_as_dict())
        try:
            if not is_storable(arguments):
                raise ModelRetry(f"An argument contains {UNSTORABLE}: send it without.")
        except ValueError as error:
            raise ModelRetry(f"The arguments are not JSON ({error}): correct them.") from error
        turn = self.seat.turns.number
        return Request(
            action_id=ActionId(f"{self.seat.execution.run_id}/{turn}/{position}:{spec.name}"),
            turn=turn,
            position=position,
            call_id=call_id,
            agent=self.seat.agent,
            tool=spec.name,
            kind="effect" if spec.kind == "effect" else "transaction",
            safety=spec.safety,
            arguments=arguments,
            gated=spec.approval is not None,
            limits=spec.limits,
        )

    def _body(
        self,
        spec: Spec,
        request: Request,
        arguments: dict[str, Any],
        ctx: RunContext[D],
        read: Callable[[], Awaitable[Any]],
    ) -> Callable[[], Awaitable[Done]]:
        call = Call(self.seat, spec, request, arguments, ctx.deps)
        if spec.kind == "read":
            return lambda: call.read(lambda: read_freely(read, classify=spec.classify))
        if self.seat.turns.deferred:
            return lambda: call.safely(call.stand_behind)
        if self.seat.turns.failed is not None:
            why = f"not done, because the call before it failed: {self.seat.turns.failed}"
            return lambda: call.refuse(why)
        body = call.transaction if spec.kind == "transaction" else call.effect
        return lambda: call.safely(body)

    def _answer(self, outcome: dict[str, Any], request: Request) -> Any:
        if "defer" in outcome:
            self.seat.turns.deferred = True
            raise ApprovalRequired(
                metadata={
                    "kind": outcome["defer"],
                    "action_id": outcome.get("action", request.action_id),  # the call's own where it names none
                    "call": request.action_id,
                    "position": request.position,
                }
            )
        if "value" not in outcome and (request.kind == "effect" or request.gated):
            self.seat.turns.failed = outcome.get("failed") or "it has to be corrected first"
        if "retry" in outcome:
            raise ModelRetry(outcome["retry"])
        if "failed" in outcome:
            raise ToolFailed(outcome["failed"])
        if "raised" in outcome:
            raise ToolRaised(outcome["raised"])
        self.seat.turns.artifacts |= bool(outcome.get("artifacts"))
        if "revised" in outcome:
            words = f"An approver changed the arguments of {request.tool} to {canonical_json(outcome['revised'])}."
            return ToolReturn(outcome["value"], content=words)
        return outcome["value"]


def _is_known(tool: ToolsetTool[Any]) -> bool:
    metadata = tool.tool_def.metadata or {}
    annotations = cast("dict[str, Any]", metadata.get("annotations") or {})
    return METADATA_KEY in metadata or bool(annotations.get("readOnlyHint"))
