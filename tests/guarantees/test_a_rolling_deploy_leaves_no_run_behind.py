"""While one version takes the place of another, runs go on: at the next boundary, or from the queue, by the new one."""

import os

from tests.builds import began, begun_by, build, drained, outlasted_s
from tests.kit import Process, until
from tests.stage import Stage

TURNS = 8
RUNS = int(os.environ.get("SUREFOOT_DEPLOY_RUNS", "24"))
DRAIN_S = 10.0
FLEET = {"SUREFOOT_DRAIN_S": str(DRAIN_S), "SUREFOOT_RUNS_AT_ONCE": "8"}
SCRIPT = [[("note", {"text": f"{n}"})] if n % 4 else [("send", {"text": f"{n}"})] for n in range(1, TURNS + 1)]
ASKED = ([("gated_note", {"text": "asked"})], [("note", {"text": "told"})])
LONG = [[("send_patiently", {"text": "long"})], [("note", {"text": "after"})]]
OPEN = "select run_id, agent_version from surefoot.runs where ended_at is null and agent_version is not null"

# What the engine has for a version of `scripted`, whether it has begun or not.
ENGINE = (
    "select workflow_uuid from dbos.workflow_status where status in ('ENQUEUED', 'PENDING') "
    "and substring(application_version from 'scripted=(\\d+)') = %s"
)


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
    """Workers of both versions come and go one by one, while runs are started all the time. No worker of the version
    that was begins or records anything once its time to drain is over."""
    old = [stage.working(**FLEET) for _ in range(2)]
    runs = [stage.script(*SCRIPT) for _ in range(RUNS // 3)]
    new = _replaced(stage, old, {**FLEET, **build("COMPATIBLE")}, runs, was="1")
    _replaced(stage, new, FLEET, runs, was="2")
    runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
    _all_ended_right(stage, runs)
    versions = began(stage)
    assert versions[runs[-1]][-1] == "1"
    assert {version for run in versions.values() for version in run} == {"1", "2"}
    outlasted = outlasted_s(stage)
    assert outlasted
    assert max(outlasted.values()) < DRAIN_S


def test_under_load_what_the_new_version_cannot_read_finishes_on_the_old_workers_and_back_again(stage: Stage) -> None:
    """Both versions have workers, and runs that wait for a person, while runs are started all the time; the old ones
    leave once no run of theirs is left. Then the same back again: what has begun on the new ones stays there."""
    fleets = {"1": FLEET, "3": {**FLEET, **build("INCOMPATIBLE")}}
    workers = [stage.working(**FLEET) for _ in range(2)]
    runs, asked = [], []
    for was, now in (("1", "3"), ("3", "1")):
        asked += [stage.script(*ASKED) for _ in range(2)]
        for run_id in asked[-2:]:
            stage.until_state(run_id, "waiting")
        runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
        others = []
        for run_id in asked[-2:]:
            others.append(stage.working(**fleets[now]))
            if was == "3":
                _use(stage, now)
            runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
            stage.approve(run_id)
        until(f"no open run is on version {was}", lambda v=was: not _open(stage, v) and not stage.rows(ENGINE, v))
        for worker in workers:
            drained(worker)
        workers = others
    runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
    _all_ended_right(stage, runs)
    for run_id in asked:
        stage.until_state(run_id, "completed")
    versions = began(stage)
    assert [versions[run_id] for run_id in asked] == [["1", "1"]] * 2 + [["3", "3"]] * 2
    assert {frozenset(run) for run in versions.values()} == {frozenset("1"), frozenset("3")}, "each is on one alone"
    assert versions[runs[-1]][-1] == "1"


def _all_ended_right(stage: Stage, runs: list[str]) -> None:
    """None has failed, none was held; each note is written once, and each thing sent once."""
    for run_id in runs:
        stage.until_state(run_id, "completed")
    assert stage.rows("select run_id from surefoot.events where kind in ('run.held', 'run.failed')") == []
    assert [len(stage.notes(run_id)) for run_id in runs] == [TURNS - TURNS // 4] * len(runs)
    assert len(stage.outside.sent) == len({sent.reference for sent in stage.outside.sent}) == len(runs) * (TURNS // 4)


def _use(stage: Stage, version: str) -> None:
    """Make it current, as a person does."""
    [named] = stage.rows(
        "select version from surefoot.version_agents where agent = 'scripted' and agent_version = %s", version
    )
    used = stage.command("versions", "use", named["version"])
    assert used.returncode == 0, used.stderr


def _open(stage: Stage, version: str) -> list[dict[str, object]]:
    return [row for row in stage.rows(OPEN) if row["agent_version"] == version]


def _replaced(stage: Stage, workers: list[Process], env: dict[str, str], runs: list[str], *, was: str) -> list[Process]:
    """One after the other, as a rolling deploy does; of what is open then, nothing is on the version that was."""
    others: list[Process] = []
    for worker in workers:
        others.append(stage.working(**env))
        runs += [stage.script(*SCRIPT) for _ in range(RUNS // 6)]
        drained(worker)
    until(f"no open run is on version {was}", lambda: not _open(stage, was))
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
