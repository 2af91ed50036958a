"""A verifier that finds something else than what the tool answers with."""

from shop_agent.tools import Deps
from shop_agent.warehouse import Reservation

from steps import Absent, Action, Found, Tools

tools = Tools[Deps](id="wrong")


async def reserved(action: Action[Deps], order_id: int) -> Found[int] | Absent:
    found = action.deps.warehouse.find(action.id)
    return Absent() if found is None else Found(found.number)


@tools.effect(verify=reserved)  # wrong
async def reserve(action: Action[Deps], order_id: int) -> Reservation:
    return action.deps.warehouse.reserve(action.id, order_id)
