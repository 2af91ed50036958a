"""The README's code runs as it stands, given only the names it says are the reader's own."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import steps
from app import Surefoot
from tests.forked import plain_environment
from tests.kit import until

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "steps", "transactions", "outbox")


class Refund(BaseModel):
    reference: str


@dataclass
class Deps:
    bank: Any


def test_the_twelve_lines_of_the_readme_declare_an_agent(database_url: str) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 12
    given: dict[str, Any] = {name: getattr(steps, name) for name in steps.__all__}
    given |= {
        "Agent": Agent,
        "DATABASE_URL": database_url,
        "Deps": Deps,
        "FastAPI": FastAPI,
        "MODEL": TestModel(),
        "Refund": Refund,
        "Surefoot": Surefoot,
        "make_deps": lambda run: Deps(bank=None),
    }
    exec(compile(code, "README.md", "exec"), given)
    assert set(given["shop"].specs) == {"refund_order"}
    assert given["shop"].specs["refund_order"].safety == "verify"
    assert list(given["surefoot"].agents) == ["shop"]


def test_every_link_of_every_readme_leads_somewhere() -> None:
    readmes = [ROOT / "README.md", *(ROOT / package / "README.md" for package in PACKAGES)]
    for page in [*readmes, *ROOT.glob("app/decisions/*.md")]:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_agent_of_ones_own_runs_as_the_readme_says(database_url: str, tmp_path: Path) -> None:
    """In a folder that is installed nowhere, with the commands that stand below it."""
    code = re.search(r"```python\n(# refunds\.py\n.*?)```", (ROOT / "app" / "README.md").read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "refunds.py").write_text(code[1])
    surefoot = Path(sys.executable).with_name("surefoot")
    env = {**plain_environment(), "DATABASE_URL": database_url, "SUREFOOT_AGENTS": "refunds:refunds"}

    def command(*words: str) -> str:
        done = subprocess.run([surefoot, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        return done.stdout

    assert "waiting for approval" in command("run", "refunds", "--input", "Refund A-7")
    [approval_id] = re.findall(r"^\S+/refund$|^\S+:refund$", command("approvals", "list"), re.MULTILINE)
    assert "goes on" in command("approvals", "approve", approval_id, "--changes", '{"amount": 900}')
    worker = subprocess.Popen([surefoot, "worker"], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    try:
        until("it is refunded", lambda: "completed" in command("runs", "list"))
    finally:
        worker.terminate()
        worker.wait()
    [line] = (tmp_path / "bank.txt").read_text().splitlines()
    assert line.endswith(" A-7 900")
