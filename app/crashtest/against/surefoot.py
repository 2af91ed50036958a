"""Surefoot: the same agent with its tools' kinds declared, and the worker that `surefoot worker` runs.

The row of a `transaction` tool commits when Surefoot commits, so that window is at the return of that very commit.
"""

import asyncio

from pydantic_ai import Agent

from app import Surefoot, wiring
from app.crashtest.against import task
from app.crashtest.against.script import model
from steps import Absent, Action, Found, Tools, durable
from transactions import Run, RunState, Tx

_LOOK_S = 0.05
_INSERT = task.INSERT_ORDER.replace("%s", ":reference")

tools = Tools[None](id="orders")


@tools.transaction
async def order(tx: Tx[None], reference: str) -> int:
    """Write the order into the database."""
    task.window("order.entered")
    row = (await tx.execute(_INSERT, reference=reference))[0]
    await _window_at_commit(tx)
    return int(row["id"])


async def published(action: Action[None], reference: str) -> Found[int] | Absent:  # noqa: ARG001
    found = await asyncio.to_thread(task.find, reference)
    return Absent() if found is None else Found(found)


@tools.effect(verify=published, attempt_s=task.ANSWER_TIMEOUT_S)
async def publish(action: Action[None], reference: str) -> int:  # noqa: ARG001
    """Publish the order."""
    return await asyncio.to_thread(task.publish, reference)


async def _window_at_commit(tx: Tx[None]) -> None:
    """Have the driver's connection pass the window as soon as this transaction's COMMIT has returned."""
    connection = await (await tx.session.connection()).get_raw_connection()
    driver = connection.driver_connection
    assert driver is not None
    commit = driver.commit

    async def committed() -> None:
        del driver.commit  # once
        await commit()
        task.window("order.committed")

    driver.commit = committed


def _no_deps(_: Run) -> None: ...


agent = durable(
    Agent(model(), name="orders", deps_type=type(None), toolsets=[tools]),
    version="1",
    deps=_no_deps,
    input=str,
    tables=task.TABLES,
)


def prepare(url: str) -> None:
    wiring.migrate_database(url, [agent])


def run(url: str, reference: str) -> None:
    async def worked() -> None:
        surefoot = Surefoot(url, [agent])
        async with surefoot.lifespan():
            run_id = await surefoot.start(agent, reference, key=reference)
            while (state := (await surefoot.status(run_id))["state"]) != RunState.COMPLETED:
                if state in (RunState.FAILED, RunState.HELD):
                    raise RuntimeError(f"the run is {state}")
                await asyncio.sleep(_LOOK_S)

    asyncio.run(worked())


if __name__ == "__main__":
    task.main(prepare, run)
