"""A run that waits twice, over three segments: killed anywhere, it does and says the same as when it is left alone."""

from steps.seat import Turns
from tests.killed import killed_at_each, left_alone, spread
from tests.stage import Stage

SCRIPT = [
    [("gated_send", {"text": "the report"}), ("note", {"text": "sent"})],
    [("gated_note", {"text": "filed"}), ("send", {"text": "the receipt"})],
]
KILLS = 12


def test_a_second_deferral_is_the_same_after_every_kill(stage: Stage) -> None:
    expected, passages = left_alone(stage, SCRIPT)
    assert expected["notes"] == ["sent", "filed"]
    assert expected["sent"] == ["the report", "the receipt"]
    assert expected["usage"][0]["segment"] == 2
    for point, found in killed_at_each(stage, SCRIPT, spread(passages, KILLS)):
        assert found == expected, f"killed at {point}"


def test_control_when_turns_are_counted_from_the_segment_two_actions_are_one(stage: Stage) -> None:
    stage.working(broken=turns_are_counted_from_the_segment)
    run_id = stage.script([("gated_send", {"text": "a"})], [("gated_send", {"text": "b"})])
    stage.until_state(run_id, "waiting")
    stage.approve(run_id)
    stage.until_state(run_id, "failed")
    reason = stage.rows("select reason from surefoot.runs where run_id = %s", run_id)[0]["reason"]
    assert "is recorded with another request" in reason


def turns_are_counted_from_the_segment() -> None:
    Turns.number = property(lambda turns: max(turns.responses, 1))
