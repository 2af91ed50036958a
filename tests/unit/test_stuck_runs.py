"""What is stuck, as the command line and the HTTP API show it; the view itself is in tests/races/test_times.py."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app import Surefoot
from tests.kit import Site, World, Zygote

ROWS = """
insert into surefoot.agents (tenant, name, version, input_schema) values ('default', 'shop', '1', '{}');
insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash)
values ('young', 'default', 'shop', 'p', '1', 'h'), ('old', 'default', 'shop', 'p', '1', 'h');
update surefoot.run_states set entered_at = now() - interval '400 seconds' where run_id = 'old';
"""


@pytest.fixture
def site(database_url: str, tmp_path: Path, zygote: Zygote) -> Iterator[Site]:
    """Nothing runs on it."""
    with Site(database_url, World(tmp_path), tmp_path, zygote) as made:
        made.rows(ROWS)
        yield made


def test_the_command_says_since_when_why_and_what_to_do(site: Site) -> None:
    said = site.command("runs", "stuck").stdout.splitlines()
    assert len(said) == 3
    assert said[0].startswith("old  shop ")
    assert said[0].endswith(" s of 300 s")
    assert said[1:] == ["  no live worker can be seen", "  start a worker that serves its agent"]
    site.rows("update surefoot.run_states set entered_at = now()")
    assert site.command("runs", "stuck").stdout == "no run is stuck\n"
    assert "queued (" not in site.command("runs", "list").stdout


async def test_the_api_lists_them_and_takes_stuck_for_no_run(site: Site) -> None:
    surefoot = Surefoot(site.database_url, [])
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(surefoot.web), base_url="http://localhost") as api:
            [row] = (await api.get("/runs/stuck")).raise_for_status().json()
            assert (row["run_id"], row["state"], row["limit_s"]) == ("old", "queued", 300)
            assert (await api.get("/runs/stuck", params={"limit": 0})).status_code == 422
            assert (await api.get("/runs/old")).json()["phase"] == "Queued"
    finally:
        await surefoot.close()
