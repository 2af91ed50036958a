"""The order is the application's: what comes too early is not asked for, claimed or sent, whatever the model says."""

import signal

import psycopg
import pytest

from steps import gate
from tests.stage import Call, Stage

EARLY: list[list[Call]] = [
    [("send_after_note", {"text": "early"})],
    [("note", {"text": "first"})],
    [("send_after_note", {"text": "in time"})],
]
SHUT = "update scripted.doors set is_open = false"


def test_what_comes_before_its_turn_is_not_sent_and_the_model_is_told(stage: Stage) -> None:
    stage.working()
    run_id = stage.script(*EARLY)
    stage.until_state(run_id, "completed")
    told = [(tool, outcome, content) for tool, outcome, content in stage.told(run_id) if tool != "note"]
    assert told == [
        ("send_after_note", "failed", "not before note has succeeded in this run"),
        ("send_after_note", "success", "1"),
    ]
    assert [sent.text for sent in stage.outside.sent] == ["in time"]
    assert actions(stage, run_id, "send_after_note") == [
        ("CANCELLED", 0, "not before note has succeeded in this run"),
        ("SUCCEEDED", 1, None),
    ]
    phases = [row["detail"] for row in stage.timeline(run_id, "event") if row["name"] == "run.phase"]
    assert phases == ['{"phase": "Sending"}']


def test_control_unchecked_it_is_sent(stage: Stage) -> None:
    stage.working(broken=nothing_is_required)
    run_id = stage.script(*EARLY)
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in stage.outside.sent] == ["early", "in time"]


def test_nobody_is_asked_for_what_may_not_be_done(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("gated_send_after_note", {"text": "early"})])
    stage.until_state(run_id, "completed")
    assert stage.approvals(run_id) == []
    assert stage.outside.sent == []


def test_behind_a_call_that_waits_it_is_asked_for_once_that_is_done(stage: Stage) -> None:
    stage.working()
    run_id = stage.script(
        [("gated_note", {"text": "x"}), ("note", {"text": "y"}), ("gated_send_after_note", {"text": "z"})]
    )
    stage.until_state(run_id, "waiting")
    assert [row["tool"] for row in stage.approvals(run_id)] == ["gated_note"]
    stage.approve(run_id)
    stage.until_quiet(run_id)
    stage.until_state(run_id, "waiting")
    assert [row["tool"] for row in stage.approvals(run_id)] == ["gated_note", "gated_send_after_note"]
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in stage.outside.sent] == ["z"]


def test_an_approval_does_not_make_up_for_it(stage: Stage) -> None:
    """It held when it was asked for, and does not when it is claimed."""
    stage.working()
    open_the_door(stage)
    run_id = stage.script([("gated_send_at_open_door", {"text": "late"})])
    stage.until_state(run_id, "waiting")
    stage.rows(SHUT)
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    assert stage.outside.sent == []
    [(state, attempt, reason)] = actions(stage, run_id, "gated_send_at_open_door")
    assert (state, attempt, reason) == ("CANCELLED", 0, "late does not go out: the door is shut")


def test_what_it_read_stays_so_until_the_commit(stage: Stage) -> None:
    """Whoever changes it meanwhile waits for the transaction that relies on it."""
    worker = stage.working("tool.transaction.before_commit:1:stop")
    open_the_door(stage)
    run_id = stage.script([("note_at_open_door", {"text": "through"})])
    worker.until_it_stops()
    with psycopg.connect(stage.database_url) as owner:
        owner.execute("set lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner.execute(SHUT)
    worker.signal(signal.SIGCONT)
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["through"]


def open_the_door(stage: Stage) -> None:
    stage.rows("insert into scripted.doors values ('front', true)")


def actions(stage: Stage, run_id: str, tool: str) -> list[tuple[str, int, str | None]]:
    rows = stage.rows(
        "select state, attempt, reason from surefoot.actions where run_id = %s and tool = %s order by turn",
        run_id,
        tool,
    )
    return [(row["state"], row["attempt"], row["reason"]) for row in rows]


def nothing_is_required() -> None:
    async def met(*_: object) -> None:
        return None

    gate.Gate.unmet = met
