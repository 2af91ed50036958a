"""An undo that takes something else than what the effect answers."""

from shop_agent.tools import Deps
from shop_agent.warehouse import Reservation

from steps import Action, Tools

tools = Tools[Deps](id="wrong")


@tools.undo(idempotent=True)
async def release(action: Action[Deps], number: int) -> None:
    raise NotImplementedError


@tools.effect(idempotent=True, undo=release)  # wrong
async def reserve(action: Action[Deps], order_id: int) -> Reservation:
    return action.deps.warehouse.reserve(action.id, order_id)
