"""Any live worker takes over a dead one's run; a run that kills one after the other without a step is put aside."""

from tests.kit import until
from tests.stage import Stage

POISON = [[("poison", {})]]
WORKERS = 4
DIE = 3  # the first of them has recorded a step, the model's; then two in a row have not


def test_a_run_that_dies_again_and_again_is_held_with_the_reason(stage: Stage) -> None:
    workers = [stage.working(SUREFOOT_STALLS_MAX="2") for _ in range(WORKERS)]
    run_id = stage.script(*POISON)
    stage.until_state(run_id, "held")
    reason = stage.rows("select reason from surefoot.runs where run_id = %s", run_id)[0]["reason"]
    assert reason.startswith("died 2 times in a row without a new step")
    until("they have died of it", lambda: [worker.exit_code() for worker in workers].count(-9) == DIE)
    other = stage.script([("note", {"text": "life goes on"})])
    stage.until_state(other, "completed")
    assert [worker.exit_code() for worker in workers].count(None) == 1
    executed = "select worker_id, generation from surefoot.events where run_id = %s and kind = 'segment.began'"
    assert len({row["worker_id"] for row in stage.rows(executed, run_id)}) == DIE


def test_a_run_that_makes_a_step_each_time_is_not_held(stage: Stage) -> None:
    stage.announce()
    run_id = stage.script([("note", {"text": "a"})], [("note", {"text": "b"})], [("note", {"text": "c"})])
    for step in range(1, 7):
        worker = stage.working(f"step.after_record:{step}", SUREFOOT_STALLS_MAX="1")
        assert worker.until_it_dies() == -9
    stage.working(SUREFOOT_STALLS_MAX="1")
    stage.until_state(run_id, "completed")


def test_control_without_the_count_it_kills_every_worker(stage: Stage) -> None:
    stage.rows("create function forget() returns trigger language plpgsql as 'begin new.stalls := 0; return new; end'")
    stage.rows("create trigger forget before update on surefoot.runs for each row execute function forget()")
    workers = [stage.working(SUREFOOT_STALLS_MAX="2") for _ in range(WORKERS)]
    run_id = stage.script(*POISON)
    assert [worker.until_it_dies() for worker in workers] == [-9] * WORKERS
    assert stage.state(run_id) == "running"
