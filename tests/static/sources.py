"""Where the product's sources are, and what is part of the repository."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "steps", "transactions", "outbox")


def modules() -> Iterator[Path]:
    """Every Python file of the product."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def repository_files() -> list[Path]:
    """What git tracks or would add, relative to the root. Skips the test where there is no repository."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("not a git repository")
    return [Path(name) for name in done.stdout.split("\0") if name and (ROOT / name).exists()]
