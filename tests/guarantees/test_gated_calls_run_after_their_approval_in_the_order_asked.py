"""What a manager gates: a refusal or expiry tells the model and cancels what stands behind; else, the emitted order."""

import signal

from tests.stage import Call, Stage
from transactions.deciding import Decision

FIRST: Call = ("gated_send", {"text": "first"})
SECOND: Call = ("gated_send", {"text": "second"})
NOTE: Call = ("note", {"text": "behind"})
GO, STOP = "approve", "reject"


def test_approved_in_reverse_order_they_run_in_the_order_asked(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage, FIRST, NOTE, SECOND)
    decide(stage, run_id, 1, GO)
    assert stage.state(run_id) == "waiting"
    assert stage.outside.sent == []
    decide(stage, run_id, 0, GO)
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["first", "second"]
    assert [answer[:2] for answer in stage.told(run_id)] == [
        ["gated_send", "success"],
        ["note", "success"],
        ["gated_send", "success"],
    ]
    done = [row["name"].rpartition(":")[2] for row in stage.timeline(run_id, "receipt")]
    assert done == ["gated_send", "note", "gated_send"]


def test_a_refusal_tells_the_model_and_cancels_what_stands_behind(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage, FIRST, NOTE, SECOND)
    decide(stage, run_id, 0, STOP, reason="not this month")
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert nothing_happened(stage, run_id)
    first, behind, second = stage.told(run_id)
    assert first == ["gated_send", "denied", "ada refused it: not this month"]
    for answer in (behind, second):
        assert answer[1] == "denied"
        assert answer[2] == "the call before it was refused: ada refused it: not this month"
    assert [row["state"] for row in stage.approvals(run_id)] == ["rejected", "void"]


def test_a_refusal_of_the_second_leaves_the_first_alone(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage, FIRST, SECOND, NOTE)
    decide(stage, run_id, 1, STOP)
    assert stage.state(run_id) == "waiting"
    decide(stage, run_id, 0, GO)
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["first"]
    assert [answer[1] for answer in stage.told(run_id)] == ["success", "denied", "denied"]
    assert stage.notes(run_id) == []


def test_a_refusal_while_the_run_is_about_to_wait_is_told_in_the_same_words(stage: Stage) -> None:
    worker = stage.working("segment.before_end:1:stop")
    run_id = stage.script([FIRST, NOTE])
    worker.until_it_stops()
    decide(stage, run_id, 0, STOP, reason="not this month")
    worker.signal(signal.SIGCONT)
    stage.until_state(run_id, "completed")
    assert nothing_happened(stage, run_id)
    assert [answer[2] for answer in stage.told(run_id)] == [
        "ada refused it: not this month",
        "the call before it was refused: ada refused it: not this month",
    ]


def test_an_expired_approval_is_a_refusal(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("briefly_gated_send", {"text": "first"}), NOTE, SECOND])
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert nothing_happened(stage, run_id)
    first, behind, second = stage.told(run_id)
    assert first == ["briefly_gated_send", "denied", "nobody decided before it expired"]
    assert behind[1] == second[1] == "denied"
    assert [row["state"] for row in stage.approvals(run_id)] == ["expired", "void"]


def test_a_gated_transaction_writes_after_its_approval_only(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage, ("gated_note", {"text": "gated"}))
    assert stage.notes(run_id) == []
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["gated"]


def test_control_when_what_stands_behind_is_not_denied_it_happens(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage, FIRST, NOTE)
    stage.rows("create function stay() returns trigger language plpgsql as 'begin return null; end'")
    stage.rows(
        "create trigger stay before update on surefoot.waits for each row when (old.kind = 'follows') "
        "execute function stay()"
    )
    stage.rows(
        "create trigger stay before update on surefoot.actions for each row "
        "when (old.tool = 'note' and new.state = 'CANCELLED') execute function stay()"
    )
    decide(stage, run_id, 0, STOP)
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["behind"]
    assert [answer[1] for answer in stage.told(run_id)] == ["denied", "success"]


def waiting(stage: Stage, *calls: Call) -> str:
    """A run that asked for these in one response, and waits."""
    run_id = stage.script(list(calls))
    stage.until_state(run_id, "waiting")
    assert nothing_happened(stage, run_id)
    return run_id


def nothing_happened(stage: Stage, run_id: str) -> bool:
    return not stage.outside.sent and not stage.notes(run_id)


def decide(stage: Stage, run_id: str, n: int, decision: Decision, *, reason: str | None = None) -> None:
    """The n-th approval that the run asked for."""
    stage.says("ada", decision, stage.approvals(run_id)[n]["approval_id"], reason=reason)
