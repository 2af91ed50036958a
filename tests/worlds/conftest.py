"""Starts the outside world's services as real processes."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a world and returns its process and the URL it announced."""
    started: list[subprocess.Popen[str]] = []

    def run(name: str, file: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", f"app.demo.worlds.{name}", "--port", str(port), "--file", str(file)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"ready ((?:http|smtp)://127\.0\.0\.1:\d+)\n", line)
        assert match, line
        return process, match[1]

    yield run
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])
