"""A waiting run is rows: no engine work, task, timer or connection; any process can die, and any other can go on."""

import asyncio
import gc
import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import CoroutineType
from typing import Any

import httpx
from sqlalchemy.pool import QueuePool

from app import segment
from tests.kit import Process, until
from tests.stage import Stage

SCRIPT = [[("gated_send", {"text": "the report"})]]
RUNS = 5


def test_while_a_run_waits_nothing_in_any_process_belongs_to_it(stage: Stage) -> None:
    worker = stage.working(broken=shows_what_it_holds)
    idle = holds_when_idle(stage, worker)
    idle_backends = min(busy_backends(stage) for _ in range(20))
    run_ids = waiting_runs(stage)
    for run_id in run_ids:
        until("the engine is done with it", lambda r=run_id: stage.engine_rows(r, "PENDING", "ENQUEUED") == 0)
    # A loop of the worker may just be using a connection: look until none does.
    until("it holds no more than when idle", lambda: holds(stage, worker, run_ids) <= idle)
    until("no more of them are busy than when idle", lambda: busy_backends(stage) <= idle_backends)
    stage.until_nothing_is_written()


def test_kill_of_serve_loses_nothing_and_others_follow_approve_and_cancel(stage: Stage) -> None:
    serving, _ = stage.serve()
    approved, cancelled, *_ = waiting_runs(stage)
    before = {run_id: everything_of(stage, run_id) for run_id in (approved, cancelled)}
    serving.kill()
    assert {run_id: everything_of(stage, run_id) for run_id in (approved, cancelled)} == before
    assert f"run {approved} of scripted: waiting for approval" in stage.command("runs", "show", approved).stdout
    assert stage.command("runs", "cancel", cancelled).returncode == 0
    _, api = stage.serve()
    followed = api.get(f"/runs/{approved}/events").json()["events"]
    assert [event["kind"] for event in followed] == [row["kind"] for row in before[approved]["events"]]
    approval = stage.approvals(approved)[0]["approval_id"]
    assert decide(api, approval) == 200
    stage.until_state(approved, "completed")
    assert decide(api, stage.approvals(cancelled)[0]["approval_id"]) == 409
    stage.until_quiet(cancelled)
    assert stage.state(cancelled) == "cancelled"
    assert [sent.reference for sent in stage.outside.sent] == [approval]
    later = api.get(f"/runs/{approved}/events", params={"after": followed[-1]["seq"]}).json()["events"]
    assert later[-1]["kind"] == "run.completed"


def test_control_a_run_that_waits_in_its_process_is_seen(stage: Stage) -> None:
    worker = stage.working(broken=waits_in_its_process)
    idle = holds_when_idle(stage, worker)
    run_ids = waiting_runs(stage)
    assert sum(stage.engine_rows(run_id, "PENDING") for run_id in run_ids) == RUNS
    more = holds(stage, worker, run_ids) - idle
    assert more["coroutines that speak of a run"] >= RUNS
    assert more["_execute_workflow_async"] == RUNS
    assert more["timers"] >= RUNS - 1  # one of the worker's own may be missing now


def decide(api: httpx.Client, approval: str) -> int:
    return api.post(f"/approvals/{approval}/decision", json={"decision": "approve"}).status_code


def waiting_runs(stage: Stage) -> list[str]:
    run_ids = [stage.script(*SCRIPT) for _ in range(RUNS)]
    for run_id in run_ids:
        stage.until_state(run_id, "waiting")
    return run_ids


def everything_of(stage: Stage, run_id: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of the run, in ours and in the engine's tables."""
    ours = ("runs", "segments", "waits", "steps", "model_messages", "model_calls", "actions", "approvals", "events")
    found = {t: stage.rows(f"select * from surefoot.{t} where run_id = %s order by 1, 2", run_id) for t in ours}
    engine = "select status, inputs from dbos.workflow_status where workflow_uuid like %s || ':%%'"
    until("the engine is done with it", lambda: stage.engine_rows(run_id, "PENDING", "ENQUEUED") == 0)
    return {**found, "engine": stage.rows(engine, run_id)}


def busy_backends(stage: Stage) -> int:
    """Connections of the worker that do anything: a statement, or a transaction."""
    busy = "datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    return stage.rows(f"select count(*) as n from pg_stat_activity where state <> 'idle' and {busy}")[0]["n"]


# What a worker holds: it answers SIGUSR1 with a line in a file of its own.


def shows_what_it_holds() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: _show())


def waits_in_its_process() -> None:
    shows_what_it_holds()
    carry_forward = segment._Execution.carry_forward

    async def and_wait(execution: Any) -> None:
        await carry_forward(execution)
        await asyncio.sleep(3600)

    segment._Execution.carry_forward = and_wait


def _show() -> None:
    loop: Any = asyncio.get_running_loop()
    everything = gc.get_objects()
    coroutines = [one for one in everything if type(one) is CoroutineType and one.cr_frame is not None]
    held = {
        "tasks": Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks()),
        "timers": sum(not handle.cancelled() for handle in loop._scheduled),
        "connections": sum(pool.checkedout() for pool in everything if isinstance(pool, QueuePool)),
        "speaking": [repr(one.cr_frame.f_locals) for one in coroutines],
    }
    file = Path(os.environ["TEST_MODEL_LOG"]).with_name(f"held-{os.getpid()}.json")
    file.with_suffix(".new").write_text(json.dumps(held))
    file.with_suffix(".new").rename(file)


def holds(stage: Stage, worker: Process, run_ids: Sequence[str] = ()) -> Counter[str]:
    """How many of each sort the worker holds now."""
    file = stage.folder / f"held-{worker.pid}.json"
    file.unlink(missing_ok=True)
    worker.signal(signal.SIGUSR1)
    until("it shows what it holds", file.exists)
    held = json.loads(file.read_text())
    speaking = sum(any(run_id in words for run_id in run_ids) for words in held.pop("speaking"))
    return Counter({**held.pop("tasks"), **held, "coroutines that speak of a run": speaking})


def holds_when_idle(stage: Stage, worker: Process) -> Counter[str]:
    """The most of several looks, for its loops come and go; of connections the least, for they use them at times."""
    looks = [holds(stage, worker) for _ in range(6)]
    most = Counter({what: max(look[what] for look in looks) for look in looks for what in look})
    return Counter({**most, "connections": min(look["connections"] for look in looks)})
