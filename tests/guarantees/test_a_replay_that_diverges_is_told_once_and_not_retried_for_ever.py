"""Recorded steps are replayed under other code where they fit, and given up where they do not, once and in words."""

from dbos import error as engine_errors

from tests.builds import SOON, begun_by, build, events, reason, until_let_go_on
from tests.stage import Stage

LOOKED = ([("look", {"text": "a"})], [("note", {"text": "b"})])
# Its steps: the model's, the look, the model's, the note, the model's.
AFTER_THE_MODEL = "step.after_record:3"


def test_a_replay_that_diverges_is_told_once_and_not_retried_for_ever(stage: Stage) -> None:
    """The new code has no `look`: where its step is recorded, it asks the model again."""
    stage.announce()
    run_id = stage.script(*LOOKED)
    assert stage.working(AFTER_THE_MODEL).until_it_dies() == -9
    worker = stage.working(**build("WITHOUT_LOOK"))
    stage.until_state(run_id, "completed")
    [told] = events(stage, run_id, "segment.diverged")
    assert (told["segment"], told["step"]) == (0, 1)
    assert str(told["expected"]).startswith("tool:look:")
    assert str(told["found"]).endswith("model.request")
    assert worker.said().count("diverged at step 1") == 1
    outcomes = stage.rows("select n, outcome from surefoot.segments where run_id = %s order by n", run_id)
    assert outcomes == [{"n": 0, "outcome": "diverged"}, {"n": 1, "outcome": "completed"}]
    assert [note["text"] for note in stage.notes(run_id)] == ["b"]
    assert begun_by(stage, run_id) == ["1", "6", "6"]


def test_what_fits_is_replayed_and_not_done_again(stage: Stage) -> None:
    stage.announce()
    run_id = stage.script(*LOOKED)
    assert stage.working(AFTER_THE_MODEL).until_it_dies() == -9
    worker = stage.working(**build("COMPATIBLE"))
    stage.until_state(run_id, "completed")
    assert events(stage, run_id, "segment.diverged") == []
    assert len(events(stage, run_id, "segment.moved")) == 1
    assert [turn for pid, turn in stage.model_requests() if pid == worker.pid] == [2]
    replayed = stage.rows("select name from surefoot.steps where run_id = %s and how = 'replayed'", run_id)
    assert len(replayed) == 3


def test_where_it_cannot_go_on_it_is_held_with_what_diverged_until_it_can(stage: Stage) -> None:
    """The effect was sent, the model has not seen its answer, and the new code has no such tool."""
    stage.announce()
    run_id = stage.script([("look", {"text": "a"}), ("send", {"text": "b"})])
    assert stage.working("effect.after_send").until_it_dies() == -9
    stage.working(**build("WITHOUT_SEND"), **SOON)
    stage.until_state(run_id, "held")
    assert "it has called send (effect), and version" in reason(stage, run_id)
    stage.working(**SOON)
    until_let_go_on(stage, run_id)
    assert len(stage.outside.of("b")) == 1
    assert begun_by(stage, run_id) == ["1", "1"]


def test_control_where_the_engine_s_error_is_the_run_s_it_fails(stage: Stage) -> None:
    stage.announce()
    run_id = stage.script(*LOOKED)
    assert stage.working(AFTER_THE_MODEL).until_it_dies() == -9
    stage.working(broken=no_divergence_is_known, **build("WITHOUT_LOOK"))
    stage.until_state(run_id, "failed")
    assert "DBOSUnexpectedStepError" in reason(stage, run_id)


def no_divergence_is_known() -> None:
    class Never(Exception): ...

    engine_errors.DBOSUnexpectedStepError = Never  # what the journal looks for; the engine has its own
