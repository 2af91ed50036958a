"""The demo as a reader starts it: a process of its own, with its output in a file."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit import until

PATIENCE_S = 240.0
KEYS = {
    "run_status",
    "kills",
    "publications",
    "mails",
    "business_rows",
    "duplicate_effects",
    "lost_results",
    "plain_publications",
    "report_path",
    "report_sha256",
    "figures",
    "seconds",
}


@dataclass(frozen=True, slots=True)
class Performance:
    """One `surefoot demo`. `home` is its SUREFOOT_HOME."""

    process: subprocess.Popen[bytes]
    home: Path
    out: Path
    json: Path

    def said(self) -> str:
        return self.out.read_text()

    def until_it_says(self, words: str) -> str:
        def look() -> str | None:
            found = next((line for line in self.said().splitlines() if words in line), None)
            assert found is not None or self.process.poll() is None, self.said()
            return found

        found = until(f"the demo says {words!r}", look, PATIENCE_S)
        assert found is not None
        return found

    def facts(self, *, ends_with: int = 0) -> dict[str, Any]:
        """What it wrote, once it has ended well and left no process behind."""
        assert self.process.wait(PATIENCE_S) == ends_with, self.said()
        assert self.left() == []
        return json.loads(self.json.read_text())

    def left(self) -> list[str]:
        """Command lines of live processes with the demo's folder in their environment or arguments."""
        mark = os.fsencode(self.home / "demo")
        found: list[str] = []
        for process in Path("/proc").iterdir():
            try:
                words = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
                if mark in words or (words and mark in (process / "environ").read_bytes()):
                    found.append(words.replace(b"\0", b" ").decode())
            except OSError:  # it has just ended
                continue
        return found


def perform(home: Path, *arguments: str, database_url: str | None = None) -> Performance:
    """Start the demo in a session of its own, as a terminal would, with nothing of Surefoot in its environment."""
    home.mkdir(exist_ok=True)
    out, file = home / "demo.out", home / "demo.json"
    file.unlink(missing_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SUREFOOT_", "DATABASE_URL"))}
    env |= {"SUREFOOT_HOME": str(home)} | ({} if database_url is None else {"DATABASE_URL": database_url})
    with out.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "demo", "--json", str(file), *arguments],
            stdout=sink,
            stderr=sink,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    return Performance(process, home, out, file)
