"""The README's code runs as it stands, given only the names it says are the reader's own."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import steps
from app import Surefoot

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
