"""An agent in its own distribution, with its own tables and tools, found by its entry point and run to its end."""

import ast
import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.extension.conftest import HERE
from tests.forked import plain_environment
from tests.kit import until

PUBLIC = ("steps", "outbox", "transactions")


def test_it_imports_only_public_names_and_nothing_of_the_application() -> None:
    found: list[str] = []
    for path in sorted((HERE / "shop_agent").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module in PUBLIC:
                public = importlib.import_module(module).__all__
                found += [f"{path.name}: {module}.{name}" for name in names if name not in public]
            else:
                reached = [module] if module else names
                found += [f"{path.name}: {name}" for name in reached if name.partition(".")[0] in (*PUBLIC, "app")]
    assert found == []


class Shop:
    """The installed command line, on a database and a warehouse of its own, in a folder away from the sources."""

    def __init__(self, installed: Path, database_url: str, folder: Path) -> None:
        self.database_url = database_url
        self.warehouse = folder / "warehouse.jsonl"
        self._program = installed / "bin" / "surefoot"
        self._folder = folder
        self._env = {
            **plain_environment(),
            "PYTHONPATH": str(installed),
            "DATABASE_URL": database_url,
            "SHOP_WAREHOUSE": str(self.warehouse),
            "SUREFOOT_WATCHDOG_S": "0.2",
            "SUREFOOT_QUEUE_POLL_S": "0.1",
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def python(self, program: str) -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, cwd=self._folder, env=self._env, capture_output=True, text=True, check=True
        ).stdout.strip()

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._program, *arguments], cwd=self._folder, env=self._env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker(self, **env: str) -> subprocess.Popen[bytes]:
        with (self._folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [self._program, "worker"], cwd=self._folder, env={**self._env, **env}, stdout=log, stderr=log
            )
        self.started.append(process)
        return process

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        with psycopg.connect(self.database_url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def tables(self) -> set[str]:
        found = self.rows("select tablename from pg_tables where tablename like 'shop%%'")
        return {row["tablename"] for row in found}

    def log(self) -> str:
        return (self._folder / "worker.log").read_text()


@pytest.fixture
def shop(installed: Path, clone: Callable[[str], AbstractContextManager[str]], tmp_path: Path) -> Iterator[Shop]:
    with clone("shop") as url:
        shop = Shop(installed, url, tmp_path)
        yield shop
        for process in shop.started:
            process.kill()
            process.wait()


def test_it_is_migrated_found_killed_and_run_to_its_end(shop: Shop, installed: Path) -> None:
    where = shop.python("import app, steps, shop_agent; print(app.__file__, steps.__file__, shop_agent.__file__)")
    assert all(Path(file).is_relative_to(installed) for file in where.split())

    assert shop.tables() == set()
    assert shop.command("migrate") == "the schema is current\n"
    assert shop.tables() == {"shop_orders", "shop_lines"}

    first = shop.worker(SUREFOOT_FAILPOINT="effect.after_send:1")
    agent = "select version, input_schema from surefoot.agents where name = 'shop'"
    [announced] = until("the agent is served", lambda: shop.rows(agent))
    assert sorted(announced["input_schema"]["properties"]) == ["customer", "item", "quantity"]
    wish = {"customer": "eve@example.org", "item": "lamp", "quantity": 3}
    [started] = shop.rows("select surefoot.start_run('shop', %s::jsonb) as run_id", json.dumps(wish))
    run_id = started["run_id"]
    assert first.wait(60) == -signal.SIGKILL, shop.log()
    assert len(shop.warehouse.read_text().splitlines()) == 1, "the warehouse had done it when the worker died"

    second = shop.worker()
    state = "select state, output, reason from surefoot.runs where run_id = %s"
    until("the run ends", lambda: shop.rows(state, run_id)[0]["state"] in ("completed", "failed", "held"))
    assert shop.rows(state, run_id) == [{"state": "completed", "output": "Reserved under number 1.", "reason": None}]

    orders = shop.rows("select id, customer, run_id from shop_orders")
    assert orders == [{"id": orders[0]["id"], "customer": "eve@example.org", "run_id": run_id}]
    lines = shop.rows("select order_id, item, quantity from shop_lines order by item")
    assert [tuple(line.values()) for line in lines] == [(orders[0]["id"], "bag", 1), (orders[0]["id"], "lamp", 3)]
    [reservation] = [json.loads(line) for line in shop.warehouse.read_text().splitlines()]
    assert reservation == {"number": 1, "reference": f"{run_id}/3/0:reserve", "order_id": orders[0]["id"]}
    receipts = shop.rows("select source, result from surefoot.receipts where action_id = %s", reservation["reference"])
    assert receipts == [{"source": "verification", "result": reservation}]
    mails = shop.rows("select payload, d.state from surefoot.outbox_entries e join surefoot.outbox_deliveries d "
                      "using (entry_id) where topic = 'mail'")  # fmt: skip
    assert [(mail["payload"]["to"], mail["state"]) for mail in mails] == [(["eve@example.org"], "pending")]

    second.terminate()
    assert second.wait(60) == 0, shop.log()
