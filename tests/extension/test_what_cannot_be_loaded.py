"""An agent that cannot be loaded, or cannot be made safe, stops the start: its name, and one sentence on what to do."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import dedent

import pytest

from tests.bad_input.sentences import rows, sentence
from tests.forked import surefoot

HEAD = """
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel

from steps import Absent, Action, Approval, Found, Tools, durable
from transactions import Run, Tx

tools = Tools[None](id="t")


def made(*toolsets, name="a", version="1", **more):
    return durable(Agent(TestModel(), name=name, toolsets=toolsets, **more), version=version, deps=lambda run: None)
"""

WRONG = {
    "a plain function as a tool": (
        """
        agent = Agent(TestModel(), name="a")

        @agent.tool_plain
        def pay(amount: int) -> str: ...

        agent = durable(agent, version="1", deps=lambda run: None)
        """,
        "`tools = Tools[Deps](id='...')`: write `@tools.read` above `pay` if it only reads, `@tools.transaction` if it "
        "writes here, `@tools.effect(...)` if it ",
    ),
    "a plain toolset": (
        """
        plain = FunctionToolset(id="plain")
        plain.add_function(lambda: 1, name="look")
        agent = made(tools, plain)
        """,
        "Agent a: tool look is a plain function",
    ),
    "an effect that says nothing of a second send": (
        """
        @tools.effect()
        async def pay(action: Action[None], amount: int) -> str: ...
        """,
        "effect pay: say how a second send is made harmless: verify=LOOKUP, idempotent=True (the other side honours "
        "action.id as key) or at_most_once=True (an unknown outcome asks a person).",
    ),
    "two tools of one name": (
        """
        @tools.read
        async def look(ctx: RunContext[None]) -> str: ...

        more = Tools[None](id="more")
        more.read(look)
        agent = made(tools, more)
        """,
        "Agent a: two tools are called look: rename one.",
    ),
    "one tool declared twice": (
        """
        @tools.read
        async def look(ctx: RunContext[None]) -> str: ...

        tools.read(look)
        """,
        "look",
    ),
    "another durability capability": (
        """
        from pydantic_ai.durable_exec.dbos import DBOSDurability

        agent = made(tools, capabilities=[DBOSDurability()])
        """,
        "Agent a brings another durability capability: remove it, Surefoot is the engine here.",
    ),
    "no name": ("agent = made(tools, name=None)", "Give the agent a name: Agent(..., name='...')."),
    "no version": (
        "agent = made(tools, version='')",
        "Agent a: give a version, such as durable(agent, version='1', ...).",
    ),
    "a transaction that is not async": (
        """
        @tools.transaction
        def save(tx: Tx[None]) -> str: ...
        """,
        "transaction save: its session is async, so write `async def`.",
    ),
    "a first parameter of another kind": (
        """
        @tools.transaction
        async def save(ctx: RunContext[None], text: str) -> str: ...
        """,
        "transaction save: its first parameter must be annotated Tx[Deps], and it is ",
    ),
    "no parameter at all": (
        """
        @tools.read
        async def look() -> str: ...
        """,
        "read look: its first parameter must be annotated RunContext[Deps], and it is None.",
    ),
    "arguments without a name": (
        """
        @tools.read
        async def look(ctx: RunContext[None], *items: str) -> str: ...
        """,
        "read look: name every parameter; *args, **kwargs and positional-only ones have no name.",
    ),
    "a verifier with other parameters": (
        """
        async def paid(action: Action[None], reference: str) -> Found[str] | Absent: ...

        @tools.effect(verify=paid)
        async def pay(action: Action[None], amount: int) -> str: ...
        """,
        "effect pay: its verifier takes ['reference'] and must take the tool's own parameters ['amount'].",
    ),
    "an attempt without time": (
        """
        @tools.effect(idempotent=True, attempt_s=0)
        async def pay(action: Action[None], amount: int) -> str: ...
        """,
        "effect pay: attempt_s and elapsed_s_max must be above 0 and at most a year, attempts_max and "
        "verifications_max from 1 to 10000.",
    ),
    "an approval of nobody": (
        "Approval(by='manager')",
        """Approval(by='manager'): say "role:NAME" or "user:NAME".""",
    ),
    "an import that fails": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'."),
    "a mistake in the code": ("agent = 1 / 0", "ZeroDivisionError: division by zero. Correct it and start again."),
    "a file that is no Python": ("agent = = 1", "SyntaxError: invalid syntax (wrong_agent.py, line "),
    "a module that ends the process": ("raise SystemExit(0)", "SystemExit"),
    "a name that is not there": ("other = 1", "AttributeError: module 'wrong_agent' has no attribute 'agent'."),
    "an agent that is not durable": (
        "agent = Agent(TestModel(), name='a')",
        "is a Agent: make it `durable(agent, version=..., deps=...)`.",
    ),
    "a name that is taken": (
        "agent = made(tools, name='monthly_report')",
        "Two agents are called 'monthly_report': rename one.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with clone("unloadable") as url:
        yield url


def write_module(folder: Path, case: str) -> None:
    (folder / "wrong_agent.py").write_text(HEAD + dedent(WRONG[case][0]))


@pytest.mark.parametrize("case", WRONG)
def test_an_agent_that_cannot_be_made_safe_stops_the_start(case: str, url: str, tmp_path: Path) -> None:
    write_module(tmp_path, case)
    env = {"DATABASE_URL": url, "PYTHONPATH": str(tmp_path), "SUREFOOT_AGENTS": "wrong_agent:agent"}
    said = sentence(surefoot("worker", env=env))
    assert WRONG[case][1] in said
    if case != "a name that is taken":
        assert said.startswith("Agent wrong_agent:agent ")
    assert rows(url, "select worker_id from surefoot.workers") == []


@pytest.mark.parametrize("command", [("worker",), ("serve", "--port", "0"), ("migrate",), ("runs", "list")])
def test_an_entry_point_that_fails_stops_every_command_with_its_name(
    command: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    write_module(tmp_path, "an import that fails")
    information = tmp_path / "wrong_agent-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-agent\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[surefoot.agents]\nbroken = wrong_agent:agent\n")
    assert sentence(surefoot(*command, env={"DATABASE_URL": url, "PYTHONPATH": str(tmp_path)})) == (
        "Agent broken (wrong_agent:agent) failed to load: ModuleNotFoundError: No module named 'no_such_module'. "
        "Correct it and start again."
    )


def test_a_good_agent_beside_it_is_loaded(url: str, tmp_path: Path) -> None:
    (tmp_path / "good_agent.py").write_text(HEAD + "agent = made(tools, name='good')\n")
    env = {"DATABASE_URL": url, "PYTHONPATH": str(tmp_path), "SUREFOOT_AGENTS": "good_agent:agent"}
    ended = surefoot("doctor", env=env)
    assert "ok   agents: monthly_report 1, ticket_triage 1, good 1" in ended.stdout
