"""The figures' database, and helpers shared by the tests of monthly_report and the demo's outside world."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from app.agents.monthly_report.csv_file import DailyFile
from app.agents.monthly_report.figures import Query

AGENT = Path(__file__).parents[2] / "app" / "agents" / "monthly_report"


@pytest.fixture(scope="session")
def figures_url(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """One database for all figures: a file is found by the hash of its bytes, so files do not meet."""
    with clone("figures") as url:
        yield url


@pytest.fixture
async def engine(figures_url: str) -> AsyncIterator[AsyncEngine]:
    """The database with the agent's tables; run again, because that must be harmless."""
    engine = create_async_engine(make_url(figures_url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    tables = (AGENT / "tables.sql").read_text()
    async with engine.begin() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        await driver.execute(tables)
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
