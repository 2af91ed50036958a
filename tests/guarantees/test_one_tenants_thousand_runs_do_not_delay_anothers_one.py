"""A thousand runs of one tenant are queued; the one of another that comes after them is next, whoever dies then."""

from typing import Any

from tests.kit import until
from tests.stage import Stage
from transactions import admitting

SLOTS = {"SUREFOOT_RUNS_AT_ONCE": "2"}
BEGUN = "select count(*) as n from surefoot.events e join surefoot.runs r using (run_id) where e.kind = 'segment.began'"


def test_one_tenants_thousand_runs_do_not_delay_anothers_one(stage: Stage) -> None:
    run_id = behind_a_thousand(stage)
    stage.working(**SLOTS)
    stage.until_state(run_id, "completed")
    assert begun_before(stage, run_id) <= 8  # what the slots of the worker that was there before and of this one had
    assert stage.rows("select count(*) as n from surefoot.runs where state = 'queued'")[0]["n"] > 900


def test_nor_when_the_workers_die_in_the_middle_of_admitting(stage: Stage) -> None:
    run_id = behind_a_thousand(stage)
    for point in ("queue.look.before_commit", "queue.look.after_commit"):
        assert stage.worker(point, **SLOTS).until_it_dies() == -9
    stage.working(**SLOTS)
    stage.until_state(run_id, "completed")
    assert begun_before(stage, run_id) <= 16


def test_control_by_age_alone_it_is_behind_them(stage: Stage) -> None:
    run_id = behind_a_thousand(stage)
    stage.working(broken=by_age_alone, **SLOTS)
    until("many of the thousand have begun", lambda: stage.rows(f"{BEGUN} and r.tenant = 'default'")[0]["n"] > 24)
    assert stage.state(run_id) == "queued"


def behind_a_thousand(stage: Stage) -> str:
    """The run of another tenant, started last, while a worker that was there is gone."""
    stage.working(**SLOTS).kill()
    stage.rows("insert into surefoot.tenants (tenant) values ('b')")
    started = "select surefoot.start_run('scripted', '{\"turns\": []}', tenant => %s) as run_id"
    stage.rows(f"{started} from generate_series(1, 1000)", "default")
    return stage.rows(started, "b")[0]["run_id"]


def begun_before(stage: Stage, run_id: str) -> int:
    """How many of the thousand had begun when this one did."""
    began = "(select min(at) from surefoot.events where run_id = %s and kind = 'segment.began')"
    return stage.rows(f"{BEGUN} and r.tenant = 'default' and e.at < {began}", run_id)[0]["n"]


def by_age_alone() -> None:
    def in_order(heads: Any, running: Any, left: Any, *, per_lane: int) -> Any:
        taken = [head for head in heads if left.take(head)]
        return taken, len(taken) == per_lane

    admitting.choose = in_order
