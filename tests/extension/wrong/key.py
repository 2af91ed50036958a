"""A business key of other parameters than the tool's own."""

from shop_agent.tools import Deps

from steps import Tools
from transactions import Tx

tools = Tools[Deps](id="wrong")


def by_customer(customer: int) -> str:
    return str(customer)


@tools.transaction(key=by_customer)  # wrong
async def place_order(tx: Tx[Deps], customer: str) -> int:
    return len(customer)
