"""A user's test file of a few lines plays the crash matrix on the shop's agent, with nothing but what is installed."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.extension.conftest import HERE, ROOT, built, uv
from tests.forked import plain_environment
from tests.kit import World
from transactions.local import LocalPostgres

FILE = HERE / "check_my_shop.py"
LINES_MAX = 15
TRUTH = "action.deps.warehouse.find(action.id)"
LIE = 'action.deps.warehouse.find("another reference")'
SENT = "kill:effect.after_send:1"


@dataclass(frozen=True, slots=True)
class Mine:
    """A folder outside the repository that holds the user's test file, and the Python that runs it."""

    folder: Path
    python: Path
    env: dict[str, str]

    def pytest(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-m", "pytest", "-rP", "--trace-config", *options, "test_my_shop.py"],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    @property
    def site(self) -> Path:
        [site] = (self.python.parents[1] / "lib").glob("python*/site-packages")
        return site


@pytest.fixture
def mine(own_python: Path, postgres: LocalPostgres, world: World, tmp_path: Path) -> Mine:
    folder = tmp_path / "mine"
    folder.mkdir()
    assert not folder.is_relative_to(ROOT)
    shutil.copy(FILE, folder / "test_my_shop.py")
    (folder / "pytest.ini").write_text("[pytest]\n")  # pytest looks no further up
    server = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    env = {name: value for name, value in plain_environment().items() if not name.startswith(("PYTHON", "PYTEST"))}
    return Mine(folder, own_python, {**env, "DATABASE_URL": server, "SHOP_SMTP_URL": world.smtp_url})


def test_the_file_is_short_and_imports_nothing_of_the_kit() -> None:
    lines = FILE.read_text().splitlines()
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if "import" in line] == ["import os"]


def test_every_case_on_the_shop_recovers(mine: Mine, tmp_path: Path) -> None:
    done = mine.pytest("--crash-html", str(tmp_path / "pages"))
    assert done.returncode == 0, done.stdout + done.stderr
    plugins = dict(re.findall(r"^\s+(\S+)\s*: (/\S+)$", done.stdout, re.MULTILINE))
    assert plugins["surefoot"] == str(mine.site / "app" / "crashtest" / "plugin.py")
    assert [file for file in plugins.values() if Path(file).is_relative_to(ROOT)] == []
    told = re.search(r"(\d+) cases struck an unfinished run of shop: \1 recovered; nothing wrong", done.stdout)
    assert told, done.stdout
    assert int(told[1]) >= 4
    assert f"{told[1]} cases struck an unfinished run of shop" in (tmp_path / "pages" / "shop.html").read_text()


def test_a_verifier_that_lies_fails_the_same_file(mine: Mine, wheels: Sequence[str], tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(HERE / "shop_agent", source / "shop_agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "pyproject.toml", source)
    tools = source / "shop_agent" / "tools.py"
    assert tools.read_text().count(TRUTH) == 1
    tools.write_text(tools.read_text().replace(TRUTH, LIE))
    instead = ("pip", "install", "--no-config", "--no-deps", "--reinstall", "--python", str(mine.python))
    uv(*instead, built(source, tmp_path / "wheels"))
    try:
        done = mine.pytest("--crash-replay", SENT)
    finally:
        uv(*instead, wheels[1])
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'double: the world has "reserved" 2 times, not 1' in done.stdout
    assert f"play it again with pytest --crash-replay '{SENT}'" in done.stdout
