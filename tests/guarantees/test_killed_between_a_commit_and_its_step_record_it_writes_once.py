"""A process killed after a transaction committed and before its step is recorded: the result is reused, not redone."""

from tests.stage import Stage

# Every point between the commit of a transaction and the record of its step, in order.
POINTS = (
    "tool.transaction.after_commit",
    "step.after_body",
    "step.row.before_commit",
    "step.row.after_commit",
    "step.before_record",
)
# One turn for each point: a worker that replays the turns before it meets its point in its own turn.
SCRIPT = [[("note", {"text": point})] for point in POINTS]


def test_killed_between_a_commit_and_its_step_record_it_writes_once(stage: Stage) -> None:
    stage.announce()
    run_id = stage.script(*SCRIPT)
    for n, point in enumerate(POINTS, start=1):
        # Each worker first meets the step that the one before left unrecorded, then asks the model, then writes.
        worker = stage.working(point if n == 1 else f"{point}:3")
        assert worker.until_it_dies() == -9
        assert len(stage.notes(run_id)) == n, f"the note of turn {n} was committed before the kill at {point}"
    stage.working()
    stage.until_state(run_id, "completed")
    notes = stage.notes(run_id)
    assert [note["text"] for note in notes] == list(POINTS)
    assert stage.told(run_id) == [["note", "success", str(note["note"])] for note in notes]
    steps = stage.timeline(run_id, "step")
    for turn in range(1, len(POINTS) + 1):
        hows = [row["how"] for row in steps if row["name"] == f"tool:note:{run_id}/{turn}/0:note"]
        assert "reused" in hows
        assert hows.count("ran") <= 1


def test_control_when_the_ledger_forgets_it_writes_twice(stage: Stage) -> None:
    stage.announce()
    run_id = stage.script(*SCRIPT)
    assert stage.working(POINTS[0]).until_it_dies() == -9
    stage.forced("update surefoot.actions set state = 'PREPARED', settled_at = null")
    stage.working()
    stage.until_state(run_id, "completed")
    texts = [note["text"] for note in stage.notes(run_id)]
    assert texts.count(POINTS[0]) == 2
    assert len(texts) == len(POINTS) + 1
