"""`python -m app.demo.triage.plain --reference NAME`: the triage as a plain pydantic-ai loop over the same tool bodies.

It makes a new key for every call, as client libraries do; its lead says yes at once. Otherwise as `app.demo.plain`.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from app.agents.ticket_triage import ticket_triage
from app.agents.ticket_triage.request import EXAMPLE
from app.demo.plain import PlainRun, PlainTx
from steps import Action, ApiError
from steps.clock import SystemClock
from transactions import DEFAULT_TENANT, ActionId, Database, FailureClass, RunId, failpoint, failures


@dataclass
class _Toolset(WrapperToolset[Any]):
    """Calls each body where it stands."""

    database: Database
    run: PlainRun

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        spec = ticket_triage.specs[name]
        if spec.kind == "read":
            return await super().call_tool(name, tool_args, ctx, tool)
        await spec.work_before(ctx.deps, tool_args)
        action_id = ActionId(f"{self.run.run_id}/{SystemClock().new_id()}:{name}")
        async with self.database.transaction("plain.tool", DEFAULT_TENANT) as session:
            tx = PlainTx(ctx.deps, self.run, action_id, session)
            if spec.kind == "transaction":
                return await spec.body(tx, **tool_args)
            binds = spec.approval and spec.approval.binds
            bound = dict(await binds(tx, **tool_args)) if binds else {}
        try:
            answer = await spec.body(Action(ctx.deps, action_id, 1, 0, self.run, bound), **tool_args)
        except ApiError as error:
            if failures.of(error).kind is FailureClass.INVALID_INPUT:
                raise ModelRetry(str(error)) from error
            raise
        failpoint("effect.after_send")
        return answer


class _Tools(AbstractCapability[Any]):
    """Puts that toolset around the agent's own."""

    def __init__(self, database: Database, run: PlainRun) -> None:
        self._parts = database, run

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _Toolset(toolset, *self._parts)


async def run_loop(reference: str) -> str:
    """One run of the agent from its beginning; what it says at the end."""
    database = Database(os.environ["DATABASE_URL"])

    async def query(sql: str, /, **parameters: object) -> Sequence[Any]:
        return await database.query(DEFAULT_TENANT, sql, **parameters)

    try:
        value = ticket_triage.parse_input(EXAMPLE)
        run = PlainRun(RunId(reference), DEFAULT_TENANT, ticket_triage.name, value, "plain", query)
        result = await ticket_triage.agent.run(
            ticket_triage.prompt_for(value),
            deps=await ticket_triage.make_deps(run),
            capabilities=[_Tools(database, run)],
        )
        return str(result.output)
    finally:
        await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.demo.triage.plain")
    parser.add_argument("--reference", required=True)
    print("done " + asyncio.run(run_loop(parser.parse_args().reference)), flush=True)


if __name__ == "__main__":
    main()
