"""While one version takes the place of another, runs go on: at the next boundary, or from the queue, by the new one."""

import os

from tests.builds import begun_by, build, drained
from tests.kit import Process, until
from tests.stage import Stage

TURNS = 8
RUNS = int(os.environ.get("SUREFOOT_DEPLOY_RUNS", "24"))
DRAIN_S = 10.0
SCRIPT = [[("note", {"text": f"{n}"})] if n % 4 else [("send", {"text": f"{n}"})] for n in range(1, TURNS + 1)]
LONG = [[("send_patiently", {"text": "long"})], [("note", {"text": "after"})]]
OPEN = "select run_id, agent_version from surefoot.runs where ended_at is null and agent_version is not null"


def test_a_rolling_deploy_leaves_no_run_behind(stage: Stage) -> None:
    """One run is in the middle of a call, one waits for a person, and one in the queue of a worker that has no room."""
    old = stage.working(SUREFOOT_RUNS_AT_ONCE="1", SUREFOOT_DRAIN_S=str(DRAIN_S))
    waiting = stage.script([("gated_note", {"text": "asked"})], [("note", {"text": "told"})])
    stage.until_state(waiting, "waiting")
    with stage.outside.held():
        running = stage.script(*LONG)
        stage.outside.until_sent(1)
        queued = stage.script([("note", {"text": "queued"})])
        stage.working(**build("COMPATIBLE"))
        stage.until_state(queued, "completed")  # moved from the old version's queue, while that one still lives
        stage.approve(waiting)
        stage.until_state(waiting, "completed")
        old.signal(15)
        draining = "select draining_at from surefoot.workers where draining_at is not null"
        until("the old worker drains", lambda: stage.rows(draining))
    assert old.until_it_dies() == 0
    stage.until_state(running, "completed")
    assert begun_by(stage, queued) == ["2"]
    assert begun_by(stage, waiting) == ["1", "2"]
    assert begun_by(stage, running) == ["1", "2"]
    assert [len(stage.outside.of("long")), len(stage.notes(running))] == [1, 1]


def test_under_load_it_leaves_none_behind_and_its_rollback_neither(stage: Stage) -> None:
    """Workers of both versions come and go one by one, while runs are started all the time."""
    fleet = {"SUREFOOT_DRAIN_S": str(DRAIN_S), "SUREFOOT_RUNS_AT_ONCE": "8"}
    old = [stage.working(**fleet) for _ in range(2)]
    runs = [stage.script(*SCRIPT) for _ in range(RUNS // 3)]
    new = _replaced(stage, old, {**fleet, **build("COMPATIBLE")}, runs, was="1")
    _replaced(stage, new, fleet, runs, was="2")
    runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
    for run_id in runs:
        stage.until_state(run_id, "completed")
    assert [len(stage.notes(run_id)) for run_id in runs] == [TURNS - TURNS // 4] * len(runs)
    assert len(stage.outside.sent) == len({sent.reference for sent in stage.outside.sent}) == len(runs) * (TURNS // 4)
    assert begun_by(stage, runs[-1])[-1] == "1"


def _replaced(stage: Stage, workers: list[Process], env: dict[str, str], runs: list[str], *, was: str) -> list[Process]:
    """One after the other, as a rolling deploy does; of what is open then, nothing is on the version that was."""
    others: list[Process] = []
    for worker in workers:
        others.append(stage.working(**env))
        runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
        drained(worker)
    until(f"no open run is on version {was}", lambda: all(row["agent_version"] != was for row in stage.rows(OPEN)))
    return others


def test_control_where_runs_stay_with_their_version_they_are_left_behind(stage: Stage) -> None:
    old = stage.working()
    waiting = stage.script([("gated_note", {"text": "asked"})])
    stage.until_state(waiting, "waiting")
    stage.rows(
        "create or replace function surefoot.version_for(of_run text, alive boolean default true) returns text "
        "language sql stable as $$ select coalesce(r.app_version, surefoot.current_version(r.agent)) "
        "from surefoot.runs r where r.run_id = of_run $$"
    )
    stage.working(**build("COMPATIBLE"))
    drained(old)
    stage.approve(waiting)
    other = stage.script([("note", {"text": "new"})])
    stage.until_state(other, "completed")
    assert stage.state(waiting) == "queued"
    assert stage.engine_rows(waiting, "ENQUEUED") == 1
