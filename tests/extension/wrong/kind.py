"""A transaction that is declared on a function of a read."""

from pydantic_ai import RunContext
from shop_agent.tools import Deps

from steps import Tools

tools = Tools[Deps](id="wrong")


@tools.transaction  # wrong
async def place_order(ctx: RunContext[Deps], customer: str) -> int:
    return len(customer)
