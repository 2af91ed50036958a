"""A verifier whose parameters are not the tool's own."""

from shop_agent.tools import Deps
from shop_agent.warehouse import Reservation

from steps import Absent, Action, Found, Tools

tools = Tools[Deps](id="wrong")


async def reserved(action: Action[Deps], reference: str) -> Found[Reservation] | Absent:
    found = action.deps.warehouse.find(reference)
    return Absent() if found is None else Found(found)


@tools.effect(verify=reserved)  # wrong
async def reserve(action: Action[Deps], order_id: int) -> Reservation:
    return action.deps.warehouse.reserve(action.id, order_id)
