"""`python -m app.crashtest.person DEED`: what a person does to a run, in a process of its own that can be killed.

DEED is JSON: {"do": "start", "agent": A, "input": I, "key": K}, {"do": "decide", "approval": ID, "decision": D,
"by": B, "reason": W, "changes": C}, {"do": "settle", "action": ID, "outcome": O, "result": J, "reason": W} or
{"do": "cancel", "run": ID}. `by` is a principal that is there. Database and agents are those of the environment.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from app.loading import load_agents
from app.surefoot import Surefoot


async def act(surefoot: Surefoot, deed: Mapping[str, Any]) -> str:
    """Do it; the run's id."""
    match deed["do"]:
        case "start":
            return await surefoot.start(deed["agent"], deed["input"], key=deed["key"])
        case "decide":
            who = await surefoot.acting_as(deed["by"])
            return await who.decide(deed["approval"], deed["decision"], reason=deed["reason"], changes=deed["changes"])
        case "settle":
            return await surefoot.settle(deed["action"], deed["outcome"], reason=deed["reason"], result=deed["result"])
        case _:
            await surefoot.cancel(deed["run"], reason="the case says so")
            return deed["run"]


async def main() -> None:
    surefoot = Surefoot(os.environ["DATABASE_URL"], load_agents(os.environ.get("SUREFOOT_AGENTS")))
    try:
        await act(surefoot, json.loads(sys.argv[1]))
    finally:
        await surefoot.close()


if __name__ == "__main__":
    asyncio.run(main())
