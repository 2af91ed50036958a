"""The pytest plugin plays the matrix on an agent that is not ours, in a test file of a few lines."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sqlalchemy import make_url

from transactions.local import LocalPostgres

OWN = Path(__file__).with_name("own")
LINES_MAX = 15


def test_a_users_own_agent_is_tested_in_a_few_lines(postgres: LocalPostgres, tmp_path: Path) -> None:
    mine = tmp_path / "test_my_agent.py"
    shutil.copy(OWN / "check_my_agent.py", mine)
    shutil.copy(OWN / "my_agent.py", tmp_path)
    assert len(mine.read_text().splitlines()) <= LINES_MAX
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    done = subprocess.run(
        # Where the installed entry point is active already, it is the same module under another name.
        [sys.executable, "-m", "pytest", "-p", "no:surefoot", "-p", "app.crashtest.plugin", "-q", "-rP", str(mine)],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": server, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path.cwd())))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"(\d+) cases struck an unfinished run of post: \1 recovered; nothing wrong", done.stdout)
