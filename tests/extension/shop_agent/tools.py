"""The shop's tools, by kind."""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import RunContext
from sqlalchemy import func, select

from outbox import Mail
from shop_agent.models import Line, Order
from shop_agent.warehouse import Reservation, Warehouse
from steps import Absent, Action, Found, Tools
from transactions import Run, Tx

STOCK = 100


@dataclass(frozen=True, slots=True)
class Deps:
    run: Run
    warehouse: Warehouse


def make_deps(run: Run) -> Deps:
    return Deps(run, Warehouse(Path(os.environ["SHOP_WAREHOUSE"])))


class Placed(BaseModel):
    order_id: int
    lines: int


tools = Tools[Deps](id="shop")


@tools.read
async def stock(ctx: RunContext[Deps], item: str) -> int:
    """How many of an item are left."""
    rows = await ctx.deps.run.query(
        "select coalesce(sum(quantity), 0) as sold from shop_lines where item = :item", item=item
    )
    return STOCK - int(rows[0]["sold"])


@tools.transaction
async def place_order(tx: Tx[Deps], customer: str, items: dict[str, int]) -> Placed:
    """Place an order of some items, each with its quantity."""
    order = Order(
        customer=customer,
        run_id=tx.run.run_id,
        lines=[Line(item=item, quantity=quantity) for item, quantity in items.items()],
    )
    tx.session.add(order)
    await tx.session.flush()
    lines = await tx.session.scalar(select(func.count()).where(Line.order_id == order.id))
    await tx.outbox("mail", Mail(to=[customer], subject=f"Order {order.id}", body="Thank you."))
    return Placed(order_id=order.id, lines=lines or 0)


async def reserved(action: Action[Deps], order_id: int) -> Found[Reservation] | Absent:
    """The warehouse lists a reservation as soon as it has made it."""
    found = action.deps.warehouse.find(action.id)
    if found is None:
        return Absent()
    return Found(found, evidence={"number": found.number, "asked": found.order_id == order_id})


@tools.effect(verify=reserved, attempt_s=2.0)
async def reserve(action: Action[Deps], order_id: int) -> Reservation:
    """Reserve a placed order in the warehouse."""
    return action.deps.warehouse.reserve(action.id, order_id)
