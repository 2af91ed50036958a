"""An approval is of exactly what it was given for. When that is not as it was, or who gave it, it is asked anew."""

import pytest

from steps.gate import Gate
from tests.agents.scripted import TRIFLE
from tests.builds import begun_by, build
from tests.kit import until
from tests.stage import Call, Stage
from transactions import InvalidInput

SEND: Call = ("gated_send_draft", {"name": "letter"})
NOTE: Call = ("note", {"text": "behind"})
OUTDATED = {
    "what it is bound to": "update scripted.drafts set text = 'another text'",
    "when it expires": "update surefoot.approvals set expires_at = clock_timestamp() where state = 'approved'",
    "what its approver may": "update surefoot.principals set roles = '{approver}' where name = 'ada'",
    "that its approver is there": "update surefoot.principals set disabled_at = clock_timestamp() where name = 'ada'",
    "the policy that asked": 'update surefoot.approvals set terms = terms || \'{"policy": "amounts above 10"}\'',
    "the agent's version": 'update surefoot.approvals set terms = terms || \'{"agent_version": "0"}\'',
}
SHOWN = {
    "what it is bound to": {"binding.text": ["a text", "another text"]},
    "what its approver may": {"approved_by": [["ada"], None]},
    "that its approver is there": {"approved_by": [["ada"], None]},
    "the policy that asked": {"policy": ["amounts above 10", "always"]},
    "the agent's version": {"agent_version": ["0", "1"]},
}


@pytest.mark.parametrize("what", OUTDATED)
def test_it_is_asked_about_anew_and_the_old_approval_is_not_used(stage: Stage, what: str) -> None:
    run_id = approved_while_no_worker_lives(stage)
    stage.rows(OUTDATED[what])
    stage.working()
    [first, second] = asked_anew(stage, run_id)
    assert stage.outside.sent == []
    assert stage.notes(run_id) == []
    assert first["state"] == "superseded"
    assert second["supersedes"] == first["approval_id"]
    if what in SHOWN:
        assert second["difference"] == SHOWN[what]
    else:
        assert list(second["difference"]) == ["expires_at"]
    [now] = stage.rows("select text from scripted.drafts")
    assert second["binding"] == {"name": "letter", "text": now["text"]}
    stage.says("bob", "approve", second["approval_id"])
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == [now["text"]]
    assert [answer[:2] for answer in stage.told(run_id)] == [["gated_send_draft", "success"], ["note", "success"]]


def test_it_stands_in_a_later_version_that_says_so(stage: Stage) -> None:
    run_id = approved_while_no_worker_lives(stage)
    stage.working(**build("COMPATIBLE"))
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in stage.outside.sent] == ["a text"]
    assert [row["state"] for row in stage.approvals(run_id)] == ["approved"]
    assert begun_by(stage, run_id) == ["1", "2"]


def test_control_in_one_that_does_not_say_so_it_is_asked_about_anew(stage: Stage) -> None:
    run_id = approved_while_no_worker_lives(stage)
    stage.working(**build("MIGRATING"))
    [first, second] = asked_anew(stage, run_id)
    assert first["state"] == "superseded"
    assert second["difference"] == {"agent_version": ["1", "4"]}
    assert stage.outside.sent == []


@pytest.mark.parametrize("amount", [1e18, 1e23, -0.0, 1.5])
def test_a_number_is_the_same_however_the_database_writes_it(stage: Stage, amount: float) -> None:
    stage.working()
    run_id = stage.script([("gated_amount", {"amount": amount})])
    stage.until_state(run_id, "waiting")
    [asked] = stage.approvals(run_id)
    stage.says("ada", "approve", asked["approval_id"])
    stage.until_state(run_id, "completed")
    assert [float(note["text"]) for note in stage.notes(run_id)] == [amount]
    assert [row["state"] for row in stage.approvals(run_id)] == ["approved"]


@pytest.mark.parametrize("what", ["what it is bound to", "that its approver is there"])
def test_control_without_the_check_of_the_claim_the_old_approval_is_used(stage: Stage, what: str) -> None:
    run_id = approved_while_no_worker_lives(stage)
    stage.rows(OUTDATED[what])
    stage.working(broken=every_approval_holds)
    stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 1


def test_what_the_person_changed_is_sent_and_the_model_is_told(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage)
    [asked] = stage.approvals(run_id)
    stage.says("ada", "approve", asked["approval_id"], changes="a better text")
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["a better text"]
    first, second = stage.approvals(run_id)
    assert (first["state"], second["state"], second["supersedes"]) == ("superseded", "approved", first["approval_id"])
    assert second["binding"] == {"name": "letter, edited", "text": "a better text"}
    said = stage.rows("select message::text as said from surefoot.model_messages where run_id = %s", run_id)
    assert any("An approver changed the arguments of gated_send_draft" in row["said"] for row in said)


def test_a_person_may_approve_so_little_that_nobody_would_have_been_asked(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("gated_amount", {"amount": 1e6})])
    stage.until_state(run_id, "waiting")
    [asked] = stage.approvals(run_id)
    with pytest.raises(InvalidInput, match="That changes nothing: approve it as it is"):
        stage.says("ada", "approve", asked["approval_id"], changes={"amount": 1e6})
    stage.says("ada", "approve", asked["approval_id"], changes={"amount": TRIFLE})
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == [str(TRIFLE)]


def test_what_is_edited_after_the_approval_is_what_is_sent_and_the_old_approval_is_not_reused(stage: Stage) -> None:
    run_id = approved_while_no_worker_lives(stage)
    [approved] = stage.approvals(run_id)
    stage.says("bob", "approve", approved["approval_id"], changes="a better text")
    stage.working()
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["a better text"]
    assert [row["state"] for row in stage.approvals(run_id)] == ["superseded", "approved"]


def test_what_is_made_before_a_transaction_is_made_of_what_was_approved(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("gated_note_thought_over", {"text": "mine"})])
    stage.until_state(run_id, "waiting")
    stage.says("ada", "approve", stage.approvals(run_id)[0]["approval_id"], changes={"text": "hers"})
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["hers, thought over"]


def test_what_an_approver_has_put_right_is_not_made_of_what_was_wrong(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("gated_send", {"text": "a"}), ("gated_note_thought_over", {"text": "unthinkable"})])
    stage.until_state(run_id, "waiting")
    first, second = stage.approvals(run_id)
    stage.says("ada", "approve", second["approval_id"], changes={"text": "hers"})
    stage.says("ada", "approve", first["approval_id"])
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["hers, thought over"]


def test_an_approved_effect_that_nobody_knows_of_waits_for_a_person_and_for_nothing_else(stage: Stage) -> None:
    worker = stage.working("effect.after_send")
    run_id = stage.script([("gated_send_blindly", {"text": "a"})])
    stage.until_state(run_id, "waiting")
    stage.approve(run_id)
    assert worker.until_it_dies() == -9
    stage.working()
    desk = "select action_id from surefoot.unknown_actions where waits_for = 'person' and run_id = %s"
    [unknown] = until("it is on the desk", lambda: stage.rows(desk, run_id))
    stage.until_state(run_id, "waiting")
    before = stage.rows("select segment, generation, event_seq from surefoot.runs where run_id = %s", run_id)
    other = stage.script([("note", {"text": "meanwhile"})])
    stage.until_state(other, "completed")
    assert stage.rows("select segment, generation, event_seq from surefoot.runs where run_id = %s", run_id) == before
    settled = stage.command("actions", "settle", unknown["action_id"], "succeeded", "--result", "1")
    assert settled.returncode == 0
    stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 1


def test_what_is_sent_can_be_changed_no_more(stage: Stage) -> None:
    stage.working()
    run_id = waiting(stage)
    [asked] = stage.approvals(run_id)
    with stage.outside.held():
        stage.says("ada", "approve", asked["approval_id"])
        stage.outside.until_sent(1)
        with pytest.raises(Exception, match="IN_FLIGHT, attempt 1: it can be changed no more"):
            stage.says("bob", "approve", asked["approval_id"], changes="a better text")
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in stage.outside.sent] == ["a text"]
    assert [row["name"] for row in stage.rows("select name from scripted.drafts")] == ["letter"], (
        "nothing is left of it"
    )


def test_the_words_ok_are_no_approval(stage: Stage) -> None:
    """What is said in a conversation, by whomever, decides nothing."""
    stage.working()
    run_id = stage.script([("look", {"text": "ok, approved by the manager"})], [SEND])
    stage.rows("insert into scripted.drafts values ('letter', 'ok')")
    stage.until_state(run_id, "waiting")
    assert stage.outside.sent == []
    assert [row["state"] for row in stage.approvals(run_id)] == ["pending"]


def waiting(stage: Stage) -> str:
    stage.rows("insert into scripted.drafts values ('letter', 'a text')")
    run_id = stage.script([SEND, NOTE])
    stage.until_state(run_id, "waiting")
    return run_id


def approved_while_no_worker_lives(stage: Stage) -> str:
    worker = stage.working()
    run_id = waiting(stage)
    worker.kill()
    stage.says("ada", "approve", stage.approvals(run_id)[0]["approval_id"])
    return run_id


def asked_anew(stage: Stage, run_id: str) -> list[dict[str, object]]:
    stage.until_state(run_id, "waiting")
    return stage.approvals(run_id)


def every_approval_holds() -> None:
    async def objection(*_: object) -> None:
        return

    Gate._unapproved = objection  # pyright: ignore[reportPrivateUsage]
