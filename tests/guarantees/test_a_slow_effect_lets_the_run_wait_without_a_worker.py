"""An effect that takes longer than its run waits inline goes on by itself; the run waits as rows and is woken by it."""

from typing import Any

from steps import Absent, calls, verifying
from tests.kit import until
from tests.stage import Stage
from transactions.lease import EXIT_LEASE_LOST

SCRIPT = [[("send_patiently", {"text": "slow"}), ("note", {"text": "behind"})], [("note", {"text": "after"})]]


def test_a_slow_effect_lets_the_run_wait_without_a_worker(stage: Stage) -> None:
    stage.working()
    with stage.outside.held():
        run_id = waits_for_delivery(stage)
        assert stage.notes(run_id) == []  # what stands behind it waits too
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [note["text"] for note in stage.notes(run_id)] == ["behind", "after"]
    assert len(stage.outside.sent) == 1
    assert stage.outside.looked_up == []


def test_killed_while_it_is_on_its_way_it_still_happens_once(stage: Stage) -> None:
    worker = stage.working()
    with stage.outside.held():
        run_id = waits_for_delivery(stage)
        worker.kill()
    stage.working()
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.pid for sent in stage.outside.sent] == [worker.pid]
    assert [note["text"] for note in stage.notes(run_id)] == ["behind", "after"]
    receipts = [row["how"] for row in stage.timeline(run_id, "receipt") if "send" in row["name"]]
    assert receipts == ["verification"]


def test_tried_again_while_the_run_waits_it_goes_out_once(stage: Stage) -> None:
    """A later attempt comes after the segment that asked for it has ended, and is as good as the first."""
    worker = stage.working()
    run_id = turned_away_twice(stage)
    stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 1
    assert [row["how"] for row in stage.timeline(run_id, "attempt")] == ["not_sent", "not_sent", "answered"]
    assert worker.exit_code() is None


def test_control_with_the_segments_token_a_later_attempt_ends_the_worker(stage: Stage) -> None:
    worker = stage.working(broken=later_attempts_are_fenced)
    turned_away_twice(stage)
    assert worker.until_it_dies() == EXIT_LEASE_LOST
    assert stage.outside.sent == []


def test_killed_before_it_was_sent_another_worker_sends_it_while_the_run_waits(stage: Stage) -> None:
    worker = stage.working("effect.before_send")
    run_id = stage.script([("send", {"text": "slow"})], agent="hasty")
    assert worker.until_it_dies() == -9
    second = stage.working()
    stage.until_state(run_id, "waiting")
    stage.until_state(run_id, "completed")
    assert [sent.pid for sent in stage.outside.sent] == [second.pid]
    assert second.exit_code() is None


def test_control_with_patience_the_run_keeps_its_worker(stage: Stage) -> None:
    stage.working()
    with stage.outside.held():
        run_id = stage.script(*SCRIPT)  # an agent that waits inline for seconds
        stage.outside.until_sent(1)
        assert stage.state(run_id) == "running"
        assert stage.engine_rows(run_id, "PENDING") == 1
    stage.until_state(run_id, "completed")


def test_control_with_every_verdict_replaced_by_absent_it_happens_twice(stage: Stage) -> None:
    worker = stage.working()
    with stage.outside.held():
        run_id = waits_for_delivery(stage)
        worker.kill()
    stage.rows("update surefoot.actions set attempt_deadline_at = clock_timestamp() where state = 'IN_FLIGHT'")
    second = stage.working(broken=every_verdict_is_absent)
    stage.until_state(run_id, "completed")
    assert [sent.pid for sent in stage.outside.sent] == [worker.pid, second.pid]


def turned_away_twice(stage: Stage) -> str:
    """A run that waits for an effect whose first two attempts the outside turns away."""
    stage.outside.busy = 2
    run_id = stage.script([("send", {"text": "slow"})], agent="hasty")
    stage.until_state(run_id, "waiting")
    return run_id


def later_attempts_are_fenced() -> None:
    calls.replace = lambda ticket, **_: ticket


def waits_for_delivery(stage: Stage) -> str:
    """A run that waits while its effect is on its way, and has no work left at the engine."""
    run_id = stage.script(*SCRIPT, agent="hasty")
    stage.until_state(run_id, "waiting")
    status = stage.rows("select waiting_for, unsettled_actions from surefoot.run_status where run_id = %s", run_id)
    assert status == [{"waiting_for": ["delivery"], "unsettled_actions": 1}]
    until("the engine is done with it", lambda: stage.engine_rows(run_id, "PENDING", "ENQUEUED") == 0)
    stage.outside.until_sent(1)
    return run_id


def every_verdict_is_absent() -> None:
    async def verdict(*_: Any) -> Absent:
        return Absent("handed in by a test")

    verifying._verdict = verdict
