"""An agent for rehearsals. Its world is a list in the test's memory, which outlives its workers as a real one does."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from steps import Absent, Action, Approval, DurableAgent, Found, Tools, durable, turns_so_far
from transactions import Run, Tx

TABLES = """
create schema if not exists shop;
create table if not exists shop.orders (number bigint generated always as identity primary key, text text not null);
"""
MANAGER = Approval[Any, [str]](by="role:manager", expires=timedelta(days=3))


@dataclass
class World:
    shipped: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    asked_the_model: int = 0


def shop(world: World, calls: list[list[str]]) -> DurableAgent[World]:
    """An agent that makes these calls, those of one turn in a list, and then says `done`."""
    tools = Tools[World](id="shop")

    @tools.transaction
    async def order(tx: Tx[World], text: str) -> int:
        rows = await tx.execute("insert into shop.orders (text) values (:text) returning number", text=text)
        return int(rows[0]["number"])

    async def was_shipped(action: Action[World], text: str) -> Found[str] | Absent:
        world.searched.append(action.id)
        return Found("found") if action.id in world.shipped else Absent()

    async def denies(action: Action[World], text: str) -> Found[str] | Absent:
        return Absent()

    async def post(action: Action[World], text: str) -> str:
        world.shipped.append(action.id)
        return "shipped"

    @tools.effect(verify=was_shipped, attempt_s=600.0)
    async def ship(action: Action[World], text: str) -> str:
        return await post(action, text)

    @tools.effect(verify=denies, attempt_s=600.0)
    async def ship_and_forget(action: Action[World], text: str) -> str:
        return await post(action, text)

    @tools.effect(at_most_once=True, attempt_s=600.0)
    async def ship_blindly(action: Action[World], text: str) -> str:
        return await post(action, text)

    @tools.effect(verify=was_shipped, approval=MANAGER, attempt_s=600.0)
    async def ship_if_agreed(action: Action[World], text: str) -> str:
        return await post(action, text)

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        world.asked_the_model += 1
        turn = turns_so_far(messages)
        if turn >= len(calls):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(tool, {"text": tool}) for tool in calls[turn]])

    def deps(run: Run) -> World:
        return world

    return durable(
        Agent(FunctionModel(says, model_name="script"), name="shop", deps_type=World, toolsets=[tools]),
        version="1",
        deps=deps,
        tables=TABLES,
    )
