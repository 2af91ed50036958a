"""The linters pass on what is in the repository, and the type checker at its strictest on the product."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.static.sources import ROOT, modules, shown

BIN = Path(sys.executable).parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [("check", "."), ("format", "--check", ".")], ids=" ".join)
def test_ruff_finds_nothing(command: tuple[str, ...]) -> None:
    done = run("ruff", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_strict_finds_nothing() -> None:
    done = run("pyright", "--outputjson")
    report = json.loads(done.stdout)
    found = [
        f"{d['file']}:{d['range']['start']['line'] + 1}: {d['message']}" for d in report.get("generalDiagnostics", [])
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] >= len(list(modules()))


IGNORED = re.compile(r"#\s*type:\s*ignore")
UNNAMED = re.compile(r"#\s*pyright:\s*ignore(?!\[)|#\s*noqa(?!:)|#\s*pyright:\s*(basic|off)")


@pytest.mark.parametrize(
    ("pattern", "caught"),
    [
        (IGNORED, "x = y  # type: ignore[attr-defined]"),
        (UNNAMED, "x = y  # noqa"),
        (UNNAMED, "x = y  # pyright: ignore"),
    ],
)
def test_no_check_is_switched_off_without_naming_it(pattern: re.Pattern[str], caught: str) -> None:
    assert pattern.search(caught)
    found = [
        f"{shown(path)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []
