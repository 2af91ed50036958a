"""Over what may wait nothing is started, over HTTP, in Python and in SQL; what is there is answered, and goes on."""

import json

import httpx
import psycopg
import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.stage import Stage
from transactions import QueueFull

BODY = {"agent": "scripted", "input": {"turns": [[["note", {"text": "a"}]]]}}
LIMIT = {"tenant": "default", "running_max": 0, "queued_max": 3}
NONE_MORE = """
create or replace function surefoot.refuse_if_full(tenant text, agent text) returns void language plpgsql as $$
begin end $$"""


async def test_a_full_queue_refuses_a_start_and_says_when_to_ask_again(stage: Stage) -> None:
    _, api = stage.serve()
    started = fill(api)
    refused = start(api)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "is full: 3 runs wait to begin, and 3 may" in refused.json()["error"]
    with pytest.raises(psycopg.Error) as in_sql:
        stage.start("scripted", json.dumps(BODY["input"]))
    assert in_sql.value.sqlstate == "SF005"
    surefoot = Surefoot(stage.database_url, AGENTS)
    with pytest.raises(QueueFull) as in_python:
        await surefoot.start("scripted", BODY["input"])
    assert in_python.value.retry_after_s >= 1
    await surefoot.close()
    assert stage.rows("select count(*) as n from surefoot.runs")[0]["n"] == 3
    same = start(api, "first")
    assert (same.status_code, same.json()["run_id"]) == (202, started[0])
    assert api.put("/limits", json={**LIMIT, "running_max": 2}).status_code == 204
    for run_id in started:
        stage.until_state(run_id, "completed")
    assert start(api).status_code == 202


def test_control_where_nothing_is_refused_the_queue_grows(stage: Stage) -> None:
    _, api = stage.serve()
    fill(api)
    stage.rows(NONE_MORE)
    assert start(api).status_code == 202


def fill(api: httpx.Client) -> list[str]:
    """Of tenant default none may begin, and three may wait."""
    assert api.put("/limits", json=LIMIT).status_code == 204
    answers = [start(api, key) for key in ("first", "second", "third")]
    assert [answer.json()["state"] for answer in answers] == ["queued"] * 3
    return [answer.json()["run_id"] for answer in answers]


def start(api: httpx.Client, key: str | None = None) -> httpx.Response:
    return api.post("/runs", json=BODY, headers={} if key is None else {"Idempotency-Key": key})
