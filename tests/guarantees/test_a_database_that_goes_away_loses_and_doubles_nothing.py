"""The server is shot while runs are at work: they go on when it is back, nothing doubled; the API says so meanwhile.

Shut down at once, away for seconds: a worker keeps its runs through an outage shorter than its lease (long
here, so that a slow machine does not end it).
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app import engine, worker
from tests.kit import World, Zygote
from tests.outside import Outside
from tests.server import Server
from tests.stage import Stage
from transactions import database

OUTAGE_S = 3.0
LEASE = {"SUREFOOT_LEASE_S": "120"}
AWAY = "The database cannot be reached right now: nothing was lost, try again in a moment."
ANSWERS = "select t.outcome from surefoot.attempts t join surefoot.actions a using (action_id) where a.run_id = %s"
SCRIPT = [[("note", {"text": "saved"})], [("send", {"text": "the report"})]]
# What comes after each point needs the database: ours, or the engine's.
POINTS = (
    "segment.begin.before_commit",
    "segment.begin.after_commit",
    "tool.transaction.before_commit",
    "tool.transaction.after_commit",
    "step.row.after_commit",
    "step.after_record",
    "segment.turn.after_commit",
    "tool.effect.after_commit",
    "effect.after_send",
    "segment.end.after_commit",
)


@pytest.fixture
def shaky(server: Server, outside: Outside, tmp_path: Path, zygote: Zygote) -> Iterator[Stage]:
    with Stage(server.joined.url, World(tmp_path), outside, tmp_path, zygote) as running:
        yield running


def test_a_database_that_goes_away_loses_and_doubles_nothing(shaky: Stage, server: Server) -> None:
    serving, api = shaky.serve(**LEASE)
    with shaky.outside.held():  # in an effect that is not answered, and in a transaction that is not committed
        run_ids = [shaky.script([("send", {"text": "a"})]), shaky.script([("long_note", {"text": "b"})])]
        shaky.outside.until_sent(2)
        server.shoot()
    down_at = time.monotonic()
    post = {"url": "/runs", "json": {"agent": "scripted", "input": {"turns": []}}, "headers": {"Idempotency-Key": "k"}}
    while time.monotonic() < down_at + OUTAGE_S:
        answers = [api.get(f"/runs/{run_ids[0]}"), api.get("/approvals"), api.get("/readyz"), api.post(**post)]
        assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(503, AWAY)] * len(answers)
        assert api.get("/healthz").status_code == 200
    server.start()
    run_ids.append(api.post(**post).json()["run_id"])
    for run_id in run_ids:
        shaky.until_state(run_id, "completed")
        shaky.until_quiet(run_id)
    assert [len(shaky.notes(run_id)) for run_id in run_ids] == [0, 1, 0]
    assert len(shaky.outside.of("a")) == 1
    assert serving.exit_code() is None
    mine = shaky.rows("select state from surefoot.workers where pid = %s", serving.pid)
    assert [row["state"] for row in mine] == ["live"]


def test_at_whatever_point_it_goes_away_the_run_goes_on(shaky: Stage, server: Server) -> None:
    workers, run_ids = [], []
    for point in POINTS:
        workers.append(shaky.working(f"{point}:1:stop", **LEASE))
        run_ids.append(shaky.script(*SCRIPT))
        workers[-1].until_it_stops()
    serving, api = shaky.serve("step.before_record:1:stop", **LEASE)
    workers.append(serving)
    run_ids.append(shaky.script(*SCRIPT))
    serving.until_it_stops()
    server.shoot()
    for one in workers:
        one.signal(signal.SIGCONT)
    down_at = time.monotonic()
    while time.monotonic() < down_at + OUTAGE_S:  # the engine's patience does not block the loop
        assert api.get("/approvals").status_code == 503
    server.start()
    for run_id in run_ids:
        shaky.until_state(run_id, "completed")
        shaky.until_quiet(run_id)
    assert [len(shaky.notes(run_id)) for run_id in run_ids] == [1] * len(run_ids)
    sent = [one.reference for one in shaky.outside.sent]
    assert len(sent) == len(set(sent)) == len(run_ids)
    assert [one.exit_code() for one in workers] == [None] * len(workers)


def test_a_server_that_takes_no_writes_for_a_while_loses_and_doubles_nothing(shaky: Stage, server: Server) -> None:
    """As a full disk makes one, or a standby that is not promoted yet. What has been sent is answered meanwhile."""
    worker = shaky.working(**LEASE)
    sent, written = _answered_while_it_takes_no_writes(shaky, server)
    for run_id in (sent, written):
        shaky.until_state(run_id, "completed")
        shaky.until_quiet(run_id)
    assert [len(shaky.outside.of("read-only")), len(shaky.notes(written))] == [1, 1]
    assert shaky.rows(ANSWERS, sent) == [{"outcome": "answered"}]
    assert worker.exit_code() is None


def test_control_who_takes_that_for_a_failure_loses_the_answer(shaky: Stage, server: Server) -> None:
    shaky.working(broken=takes_it_for_a_failure, **LEASE)
    sent, _ = _answered_while_it_takes_no_writes(shaky, server)
    assert shaky.rows(ANSWERS, sent) != [{"outcome": "answered"}]


def _answered_while_it_takes_no_writes(stage: Stage, server: Server) -> tuple[str, str]:
    with stage.outside.held():
        run_ids = stage.script([("send", {"text": "read-only"})]), stage.script([("long_note", {"text": "b"})])
        stage.outside.until_sent(2)
        server.takes_writes(False)
    time.sleep(OUTAGE_S)
    server.takes_writes(True)
    return run_ids


def takes_it_for_a_failure() -> None:
    database.try_elsewhere = engine.try_elsewhere = lambda _: None


def test_control_an_engine_that_does_not_know_the_outage_records_it_as_the_result(shaky: Stage, server: Server) -> None:
    worker = shaky.working("step.before_record:1:stop", broken=connects_as_the_driver_does, **LEASE)
    run_id = shaky.script(*SCRIPT)
    worker.until_it_stops()
    server.shoot()
    worker.signal(signal.SIGCONT)
    worker.until_it_says(f"run {run_id} failed")
    server.start()
    shaky.until_state(run_id, "failed")
    reason = shaky.rows("select reason from surefoot.runs where run_id = %s", run_id)[0]["reason"]
    assert "OperationalError" in reason


def connects_as_the_driver_does() -> None:
    worker.connector = lambda url, *_, **__: lambda: psycopg.connect(url)
