"""Limits, schedules, the queue and delays, as the command line and the HTTP API show them and take them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import Site, World, Zygote

ROWS = "insert into surefoot.agents (name, version, input_schema) values ('scripted', '1', '{}')"
NOTHING = '{"turns": []}'
TOMORROW = "2100-01-01T09:00:00+01:00"


@pytest.fixture
def site(database_url: str, tmp_path: Path, zygote: Zygote) -> Iterator[Site]:
    """Nothing runs on it."""
    with Site(database_url, World(tmp_path), tmp_path, zygote) as made:
        made.env["SUREFOOT_AGENTS"] = "tests.agents.scripted:AGENTS"
        made.rows(ROWS)
        yield made


@pytest.fixture
async def api(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    surefoot = Surefoot(site.database_url, AGENTS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(surefoot.web), base_url="http://localhost") as client:
        yield client
    await surefoot.close()


def said(site: Site, *words: str) -> list[str]:
    ended = site.command(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_the_command_sets_limits_lists_them_and_ends_them(site: Site) -> None:
    limits = ("--running-max", "0", "--queued-max", "1", "--starts-max", "2", "--period-s", "60")
    values = "running_max 0, queued_max 1, starts_max 2 in 60 s"
    assert said(site, "limits", "set", "--tenant", "default", "--agent", "scripted", *limits) == [
        f"set for tenant default, agent scripted: {values}"
    ]
    shown = said(site, "limits", "list")
    assert shown[0] == f"tenant default, agent scripted: {values}"
    assert shown[1].startswith("  set by owner at ")
    assert said(site, "run", "scripted", "--input", NOTHING, "--no-wait", "--priority", "3")[1] == (
        "  limit of tenant default for agent scripted: 0 running"
    )
    assert said(site, "queue")[0] == "scripted              0 running, 1 waiting, 0 delayed"
    full = site.command("run", "scripted", "--input", NOTHING, "--no-wait")
    assert full.returncode == 1
    assert 'surefoot: The queue of tenant "default" and agent "scripted" is full: 1 runs wait' in full.stderr
    assert said(site, "limits", "unset", "--tenant", "default", "--agent", "scripted") == [
        "no limit for tenant default, agent scripted"
    ]
    assert said(site, "limits", "list", "--all") == ["no limits"]
    assert "There is no such limit: see" in site.command("limits", "unset").stderr


def test_the_command_sets_schedules_lists_them_pauses_and_removes_them(site: Site) -> None:
    words = ("--cron", "0 9 * * MON-FRI", "--time-zone", "Europe/Berlin", "--input", NOTHING)
    assert said(site, "schedules", "set", "daily", "scripted", *words) == ["schedule daily is set"]
    [shown] = said(site, "schedules", "list")
    assert shown.startswith("daily                 scripted              0 9 * * MON-FRI  Europe/Berlin  due at ")
    assert said(site, "schedules", "pause", "daily") == ["paused daily"]
    assert "paused, as unauthenticated" in said(site, "schedules", "list")[0]
    assert said(site, "schedules", "resume", "daily") == ["resumed daily"]
    assert said(site, "schedules", "remove", "daily") == ["removed daily"]
    assert said(site, "schedules", "list") == ["no schedules"]


async def test_the_api_starts_a_run_later_and_says_when(api: httpx.AsyncClient, site: Site) -> None:
    body = {"agent": "scripted", "input": {"turns": []}, "priority": -5}
    refused = await api.post("/runs", json={**body, "not_before": TOMORROW})
    assert refused.status_code == 422
    assert "may be delayed by at most 366 days" in refused.json()["error"]
    naive = await api.post("/runs", json={**body, "not_before": "2027-01-01T09:00:00"})
    assert "has no time zone" in naive.json()["error"]
    soon = site.rows("select now() + interval '1 hour' as at")[0]["at"]
    started = (await api.post("/runs", json={**body, "not_before": soon.isoformat()})).json()
    run = (await api.get(f"/runs/{started['run_id']}")).json()
    assert (run["state"], run["priority"]) == ("queued", -5)
    assert run["queued_why"].startswith("it is to begin at ")
    [row] = (await api.get("/queue")).json()
    assert (row["agent"], row["waiting"], row["delayed"]) == ("scripted", 0, 1)
    assert row["next_due_at"] == run["due_at"]


async def test_the_api_refuses_what_is_no_limit_and_no_schedule(api: httpx.AsyncClient) -> None:
    assert (await api.put("/limits", json={"tenant": "default"})).status_code == 422
    assert (await api.put("/limits", json={"tenant": "nowhere", "running_max": 1})).status_code == 404
    assert (await api.delete("/limits", params={"agent": "scripted"})).status_code == 404
    schedule = {"agent": "scripted", "input": {"turns": []}, "cron": "0 9 * * *"}
    assert (await api.put("/schedules/daily", json={**schedule, "agent": "nobody"})).status_code == 404
    assert (await api.put("/schedules/daily", json={**schedule, "input": 3})).status_code == 422
    assert (await api.put("/schedules/daily", json={**schedule, "missed": "some"})).status_code == 422
    assert (await api.put("/schedules/a b", json=schedule)).status_code == 422
    assert (await api.put("/schedules/daily", json=schedule)).status_code == 204
    assert (await api.post("/schedules/daily/pause")).status_code == 204
    [row] = (await api.get("/schedules")).json()
    assert (row["name"], row["enabled"], row["next_at"]) == ("daily", False, None)
    assert (await api.post("/schedules/nightly/resume")).status_code == 404


async def test_in_python_it_is_the_same(site: Site) -> None:
    surefoot = Surefoot(site.database_url, AGENTS)
    try:
        await surefoot.set_limit(agent="scripted", running_max=1)
        run_id = await surefoot.start("scripted", {"turns": []}, delay_s=3600)
        assert (await surefoot.status(run_id))["due_at"] is not None
        [row] = await surefoot.limits(everywhere=True)
        assert (row["of_tenant"], row["agent"], row["running_max"]) == (None, "scripted", 1)
        for both in ({"delay_s": -1.0}, {"delay_s": 1e9}, {"delay_s": float("nan")}):
            with pytest.raises(Exception, match="delay_s is from 0 to"):
                await surefoot.start("scripted", {"turns": []}, **both)
    finally:
        await surefoot.close()
