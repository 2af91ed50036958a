"""Publish and tell the team, asked for in one response: whatever dies before the approval, no mail goes out by then."""

from collections.abc import Iterator

from steps.seat import Turns
from tests.stage import Stage, records_passages

SCRIPT = [
    [("note", {"text": "saved"})],
    [("gated_send", {"text": "the report"}), ("tell", {"text": "it is published"})],
]
# The steps of the first segment, each with the commits of its own body, and whether it is a model request.
STEPS = (
    ((), True),
    (("tool.transaction.before_commit", "tool.transaction.after_commit"), False),
    ((), True),
    (("tool.effect.before_commit", "tool.effect.after_commit"), False),
    (("tool.stand_behind.before_commit", "tool.stand_behind.after_commit"), False),
)


def points() -> Iterator[str]:
    """Every point of the first segment in order. A worker replays what is recorded and meets each point at its step."""
    yield from ("segment.begin.before_commit", "segment.begin.after_commit")
    for number, (commits, is_model) in enumerate(STEPS, start=1):
        yield from ("step.before_body", *commits, "step.after_body")
        yield from ("step.row.before_commit", "step.row.after_commit", "step.before_record")
        yield f"step.after_record:{number}"  # passed by replayed steps too
        if is_model:
            yield from ("segment.turn.before_commit", "segment.turn.after_commit")
    yield from ("segment.before_end", "segment.end.before_commit", "segment.end.after_commit")


def test_killed_anywhere_before_the_approval_nobody_is_told(stage_with_mail: Stage) -> None:
    stage = stage_with_mail
    stage.announce()
    run_id = stage.script(*SCRIPT)
    for point in points():
        worker = stage.working(point, SUREFOOT_STALLS_MAX="1000")
        assert worker.until_it_dies() == -9, f"it died at {point}"
        assert not stage.world.mails()
        assert not stage.outside.sent
    stage.working()
    stage.until_state(run_id, "waiting")
    stage.until_quiet(run_id)
    assert not stage.world.mails()
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert len(stage.outside.sent) == 1
    assert [mail.subject for mail in stage.world.mails()] == ["it is published"]
    assert len(stage.notes(run_id)) == 1


def test_no_point_of_the_segment_is_left_out(stage: Stage) -> None:
    worker = stage.working(broken=records_passages)
    run_id = stage.script(*SCRIPT)
    stage.until_state(run_id, "waiting")
    stage.until_quiet(run_id)
    passed = set(stage.passages(worker))
    assert passed == {point.partition(":")[0] for point in points()}


def test_control_without_the_barrier_the_team_is_told_before_the_approval(stage_with_mail: Stage) -> None:
    stage = stage_with_mail
    stage.working(broken=deferral_is_no_barrier)
    run_id = stage.script(*SCRIPT)
    stage.until_state(run_id, "waiting")
    stage.until_quiet(run_id)
    assert [mail.subject for mail in stage.world.mails()] == ["it is published"]
    assert not stage.outside.sent


def deferral_is_no_barrier() -> None:
    Turns.deferred = property(lambda turns: False, lambda turns, value: None)
