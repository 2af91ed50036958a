"""Runs that wait for a person's decision are rows: no worker holds, reads or asks anything for them."""

import time

from tests.crowd import SLACK, at_rest, copy, no_more
from tests.kit import Process
from tests.stage import Stage

MANY = 10_000
RESTARTS = 3
RESTART_SLACK = 1.1
# How often a worker looks at its queue, by its settings.
POLL_S = 0.2


def test_ten_thousand_runs_wait_for_approval_and_cost_nothing(stage: Stage) -> None:
    worker = stage.working()
    run_id = stage.script([("gated_send", {"text": "a"})])
    stage.until_state(run_id, "waiting")
    alone = stage.script([("gated_send", {"text": "alone"})])
    stage.until_state(alone, "waiting")
    woke_alone = approved(stage, alone)
    worker.kill()
    started = min(started_in(stage) for _ in range(RESTARTS))
    worker = stage.working()
    idle = at_rest(stage, worker)
    copy(stage, run_id, MANY - 1)
    before = facts(stage)
    assert len(stage.command("approvals", "list").stdout.split("needs role:manager")) - 1 == 100  # a page of them
    with_many = no_more(stage, worker, idle)
    worker.kill()
    started_with_many = started_within(stage, RESTART_SLACK * started)
    again = stage.working()
    after_a_restart = no_more(stage, again, idle)
    print(f"idle {idle}, with {MANY} {with_many}, after a restart {after_a_restart}")
    assert facts(stage) == before
    assert started_with_many <= RESTART_SLACK * started, (started_with_many, started)
    for found in (with_many, after_a_restart):
        assert found.transactions <= SLACK * idle.transactions + 3
        assert found.rows_read <= SLACK * idle.rows_read + MANY / 2  # nothing reads through them, not once
        assert found.connections <= idle.connections
        assert found.memory <= SLACK * idle.memory
    assert stage.outside.sent == stage.outside.sent[:1], "nothing but the one that was alone"
    chosen = f"{run_id}x{MANY // 2}"
    woke = approved(stage, chosen)
    print(f"decision to segment: alone {woke_alone:.3f} s, among {MANY} {woke:.3f} s")
    print(f"until a new worker works: {started:.2f} s and {started_with_many:.2f} s")
    assert woke <= woke_alone + POLL_S
    waiting = stage.rows("select count(*) as n from surefoot.run_status where waiting_for = '{approval}'")
    assert waiting[0]["n"] == MANY - 1


def approved(stage: Stage, run_id: str) -> float:
    """Approve what the run asks for; seconds from the decision's commit until a worker went on with it."""
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    [row] = stage.rows(
        "select extract(epoch from min(e.at) filter (where e.kind = 'segment.began' and e.seq > d.seq) - min(d.at)) s "
        "from surefoot.events e, surefoot.events d where e.run_id = %s and d.run_id = e.run_id "
        "and d.kind = 'approval.approved'",
        run_id,
    )
    return float(row["s"])


def started_within(stage: Stage, limit_s: float) -> float:
    """The fewest seconds until a new worker works; tried again while that is more, for another minute may be busier."""
    fewest = started_in(stage)
    for _ in range(2 * RESTARTS - 1):
        if fewest <= limit_s:
            break
        fewest = min(fewest, started_in(stage))
    return fewest


def started_in(stage: Stage) -> float:
    """Seconds until a new worker works, started as an operator starts it."""
    began = time.monotonic()
    worker = Process(stage.folder / f"restart-{began}.log", ["-m", "app.cli", "worker"], stage.env)
    worker.until_it_says("works as")
    took = time.monotonic() - began
    worker.kill()
    return took


def facts(stage: Stage) -> list[dict[str, object]]:
    """All that would change if anybody did anything to one of them."""
    return stage.rows(
        "select (select sum(event_seq) from surefoot.runs) as events, (select sum(generation) from surefoot.runs) as "
        "generations, (select count(*) from surefoot.attempts) as attempts, (select count(*) from surefoot.approvals "
        "where state = 'pending') as pending, (select sum(segment) from surefoot.runs) as segments"
    )
