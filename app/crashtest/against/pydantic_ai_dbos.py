"""pydantic-ai's own DBOS integration: the `DBOSDurability` capability in a workflow, tools decorated as steps.

Every start has the same executor id (DBOS's default, `local`), so that the launch recovers what the last one left.
"""

import asyncio

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability

from app.crashtest.against import task
from app.crashtest.against.script import model


@DBOS.step()
async def order(reference: str) -> int:
    """Write the order into the database."""
    return await asyncio.to_thread(task.order, reference)


@DBOS.step()
async def publish(reference: str) -> int:
    """Publish the order."""
    return await asyncio.to_thread(task.publish, reference)


agent = Agent(model(), name="orders", tools=[order, publish], capabilities=[DBOSDurability()])


@DBOS.workflow()
async def take_order(reference: str) -> str:
    result = await agent.run(reference)
    return result.output


def configure(url: str) -> None:
    DBOS(config={"name": "orders", "system_database_url": url})


def prepare(url: str) -> None:
    """The tables that a first launch makes, made once for all cases."""
    task.create_tables(url)
    configure(url)
    DBOS.launch()
    DBOS.destroy()


def run(url: str, reference: str) -> None:
    async def launched() -> None:
        DBOS.launch()  # this recovers a workflow that the last process left; its id makes the start below idempotent
        with SetWorkflowID(reference):
            handle = await DBOS.start_workflow_async(take_order, reference)
        await handle.get_result()

    configure(url)
    asyncio.run(launched())
    DBOS.destroy()


if __name__ == "__main__":
    task.main(prepare, run)
