"""A plain pydantic-ai agent: nothing is recorded, and a run that died is run again from its start."""

from pydantic_ai import Agent

from app.crashtest.against import task
from app.crashtest.against.script import model

agent = Agent(model(), name="orders", tools=[task.order, task.publish])


def run(_url: str, reference: str) -> str:
    return agent.run_sync(reference).output


if __name__ == "__main__":
    task.main(task.create_tables, run)
