"""What a person is asked is a row: it is there after any process has died, as it was, and once."""

import pytest

from tests.stage import Stage

ASKED = ("approval_id", "arguments", "binding", "approvers", "requested_at", "expires_at")


def test_it_is_there_after_the_service_was_killed_and_is_decided_there(stage: Stage) -> None:
    first, api = stage.serve()
    run_id = stage.script([("look", {"text": "x"}), ("note", {"text": "analysed"})], [("gated_send", {"text": "a"})])
    stage.until_state(run_id, "waiting")
    [before] = api.get("/approvals").raise_for_status().json()
    first.kill()
    second, api = stage.serve()
    [after] = api.get("/approvals").raise_for_status().json()
    assert after == before
    assert stage.outside.sent == []
    api.post(f"/approvals/{after['approval_id']}/decision", json={"decision": "approve"}).raise_for_status()
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["a"]
    assert [note["text"] for note in stage.notes(run_id)] == ["analysed"]
    assert [turn for _, turn in stage.model_requests()] == [0, 1, 2], "nothing is asked of the model again"
    second.kill()


@pytest.mark.parametrize(
    "point", ["tool.effect.before_commit", "tool.effect.after_commit", "step.before_record:4", "segment.before_end"]
)
def test_a_worker_that_dies_while_it_asks_asks_once_and_keeps_what_it_has_found(stage: Stage, point: str) -> None:
    first = stage.working(point)
    run_id = stage.script([("look", {"text": "x"}), ("note", {"text": "analysed"})], [("gated_send", {"text": "a"})])
    assert first.until_it_dies() == -9
    found = stage.notes(run_id)
    stage.working()
    stage.until_state(run_id, "waiting")
    assert stage.notes(run_id) == found, "what was found is kept"
    [asked] = stage.approvals(run_id)
    assert asked["state"] == "pending"
    assert [turn for _, turn in stage.model_requests()].count(0) == 1
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert len(stage.outside.sent) == 1


def test_two_of_three_are_approved_before_a_crash_and_the_third_after_it(stage: Stage) -> None:
    first, _ = stage.serve()
    run_id = stage.script([("gated_send", {"text": text}) for text in ("first", "second", "third")])
    stage.until_state(run_id, "waiting")
    asked = stage.approvals(run_id)
    stage.says("ada", "approve", asked[2]["approval_id"])
    stage.says("bob", "approve", asked[0]["approval_id"])
    first.kill()
    second, api = stage.serve()
    [left] = api.get("/approvals").raise_for_status().json()
    assert left["approval_id"] == asked[1]["approval_id"]
    assert stage.state(run_id) == "waiting"
    assert stage.outside.sent == []
    stage.says("cleo", "approve", left["approval_id"])
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["first", "second", "third"]
    assert [row["decided_by"] for row in stage.approvals(run_id)] == ["bob", "cleo", "ada"]
    assert len(stage.approvals(run_id)) == 3, "none is asked twice"
    second.kill()


@pytest.mark.parametrize("point", [None, "tool.effect.after_commit", "tool.stand_behind.after_commit"])
def test_what_is_refused_is_told_so_whether_the_run_waited_or_its_worker_had_died(
    stage: Stage, point: str | None
) -> None:
    """The exhaustive pass has found that it was told as a failure where the segment went on."""
    worker = stage.working(point)
    run_id = stage.script([("gated_send", {"text": "a"}), ("note", {"text": "behind"})])
    if point is None:
        stage.until_state(run_id, "waiting")
        worker.kill()
    else:
        assert worker.until_it_dies() == -9
    [asked] = stage.approvals(run_id)
    stage.says("ada", "reject", asked["approval_id"], reason="no")
    stage.working()
    stage.until_state(run_id, "completed")
    refused = "ada refused it: no"
    assert stage.told(run_id) == [
        ["gated_send", "denied", refused],
        ["note", "denied", f"the call before it was refused: {refused}"],
    ]
    assert stage.notes(run_id) == []


def test_one_that_expires_while_no_worker_lives_is_a_refusal_once_there_is_one(stage: Stage) -> None:
    worker = stage.working()
    run_id = stage.script([("gated_send", {"text": "a"}), ("note", {"text": "behind"})])
    stage.until_state(run_id, "waiting")
    worker.kill()
    stage.rows("update surefoot.approvals set expires_at = clock_timestamp()")
    [asked] = stage.approvals(run_id)
    with pytest.raises(Exception, match=r"expired at .+: the agent has to ask again"):
        stage.says("ada", "approve", asked["approval_id"])
    assert stage.state(run_id) == "waiting"
    stage.working()
    stage.until_state(run_id, "completed")
    assert stage.outside.sent == []
    assert stage.notes(run_id) == []
    assert stage.told(run_id)[0] == ["gated_send", "denied", "nobody decided before it expired"]
