"""The import contracts hold, and each of them is one that breaks: shown on a copy with one forbidden import added."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.static.sources import PACKAGES, ROOT

CONTRACTS: dict[str, Any] = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}

# What each contract forbids, at its plainest: (module, import to add). A contract without a case here fails.
VIOLATIONS: dict[str, list[tuple[str, str]]] = {
    "base": [
        ("transactions/ids.py", "import steps.clock"),
        ("transactions/ids.py", "import outbox.mail"),
        ("transactions/ids.py", "import app.settings"),
    ],
    "arms": [("steps/clock.py", "import outbox.mail"), ("outbox/mail.py", "import steps.clock")],
    "head": [("steps/clock.py", "import app.settings"), ("outbox/mail.py", "import app.settings")],
    "sql": [
        ("app/settings.py", "import sqlalchemy"),
        ("steps/clock.py", "import psycopg"),
        ("outbox/mail.py", "import psycopg"),
    ],
    "engine": [("transactions/ids.py", "import dbos"), ("outbox/mail.py", "import pydantic_ai")],
    "web": [
        ("transactions/ids.py", "import fastapi"),
        ("steps/clock.py", "import fastapi"),
        ("outbox/mail.py", "import fastapi"),
    ],
}
CASES = [(contract, *case) for contract in CONTRACTS for case in VIOLATIONS.get(contract, [])]


def lint(folder: Path) -> dict[str, str]:
    """KEPT or BROKEN by the name of each contract, for the packages in `folder`."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "pyproject.toml", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(folder), "PATH": str(Path(sys.executable).parent), "PYTHONIOENCODING": "utf-8"},
    )
    verdicts = re.findall(r"^(.+) (KEPT|BROKEN)(?: \(.+\))?$", done.stdout, flags=re.MULTILINE)
    assert len(verdicts) == len(CONTRACTS), done.stdout + done.stderr
    assert (done.returncode == 0) == all(verdict == "KEPT" for _, verdict in verdicts)
    return dict(verdicts)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and the project's configuration, to be spoilt."""
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "data"))
    return folder


def test_every_contract_is_kept(copy: Path) -> None:
    assert lint(copy) == {contract["name"]: "KEPT" for contract in CONTRACTS.values()}


def test_every_contract_has_a_case_that_breaks_it() -> None:
    assert VIOLATIONS.keys() == CONTRACTS.keys()


@pytest.mark.parametrize(("contract", "module", "forbidden"), CASES)
def test_a_forbidden_import_breaks_its_contract(copy: Path, contract: str, module: str, forbidden: str) -> None:
    path = copy / module
    original = path.read_text()
    path.write_text(f"{original}\n{forbidden}\n")
    try:
        assert lint(copy)[CONTRACTS[contract]["name"]] == "BROKEN"
    finally:
        path.write_text(original)


def test_the_one_composition_module_may_import_the_database_and_its_neighbour_may_not(copy: Path) -> None:
    name = CONTRACTS["sql"]["name"]
    for module, verdict in (("app/wiring.py", "KEPT"), ("app/worker.py", "BROKEN")):
        path = copy / module
        original = path.read_text()
        path.write_text(f"{original}\nimport sqlalchemy\nimport psycopg\n")
        assert lint(copy)[name] == verdict
        path.write_text(original)
