"""From the commit that cancels a running run on nothing of it is claimed or written, whoever dies, and it ends soon."""

import signal
from collections.abc import Callable

import pytest

from app.interrupts import Interrupts
from tests.kit import until
from tests.stage import Call, Stage
from transactions import events

LONG: list[list[Call]] = [[("long_note", {"text": "slow"})], [("send", {"text": "never"})]]
ON_ITS_WAY: list[list[Call]] = [
    [("send_patiently", {"text": "slow"}), ("note", {"text": "behind"})],
    [("send", {"text": "never"})],
]
ASKED_FOR: list[list[Call]] = [[("send", {"text": "never"})]]
WRITTEN: list[list[Call]] = [[("note", {"text": "never"})]]


def test_a_long_tool_is_interrupted_and_its_worker_goes_on(stage: Stage) -> None:
    worker = stage.working()
    with stage.outside.held():
        run_id = stage.script(*LONG)
        stage.outside.until_sent(1)
        stage.cancel(run_id)
        stage.until_state(run_id, "cancelled")
        stage.until_quiet(run_id)
        ended(stage, run_id)
    other = stage.script([("note", {"text": "another run"})])
    stage.until_state(other, "completed")
    assert worker.exit_code() is None


def test_calls_that_go_on_side_by_side_end_with_it(stage: Stage) -> None:
    stage.working()
    with stage.outside.held():
        run_id = stage.script([("long_note", {"text": "a"}), ("long_note", {"text": "b"}), ("look", {"text": "c"})])
        stage.outside.until_sent(2)
        stage.cancel(run_id)
        stage.until_state(run_id, "cancelled")
        stage.until_quiet(run_id)
    assert stage.notes(run_id) == []
    assert stage.engine_rows(run_id, "SUCCESS") == 1


def test_what_was_sent_before_is_answered_and_nothing_follows(stage: Stage) -> None:
    stage.working()
    with stage.outside.held():
        run_id = stage.script(*ON_ITS_WAY)
        stage.outside.until_sent(1)
        stage.cancel(run_id)
        stage.until_state(run_id, "cancelled")
        assert states(stage, run_id) == {"IN_FLIGHT"}
    stage.until_quiet(run_id)
    assert states(stage, run_id) == {"SUCCEEDED"}
    ended(stage, run_id)


@pytest.mark.parametrize("point", ["segment.before_end", "segment.end.before_commit", "segment.end.after_commit"])
@pytest.mark.parametrize("script", [LONG, ON_ITS_WAY], ids=["a transaction", "an effect"])
def test_killed_while_it_is_being_cancelled_another_worker_ends_it(
    stage: Stage, point: str, script: list[list[Call]]
) -> None:
    worker = stage.working(point)
    with stage.outside.held():
        run_id = stage.script(*script)
        stage.outside.until_sent(1)
        stage.cancel(run_id)
        assert worker.until_it_dies() == -9
    stage.working()
    stage.until_state(run_id, "cancelled")
    stage.until_quiet(run_id)
    ended(stage, run_id)
    assert states(stage, run_id) <= {"SUCCEEDED"}


@pytest.mark.parametrize("script", [ASKED_FOR, WRITTEN], ids=["an effect", "a transaction"])
def test_what_the_model_asked_for_before_is_not_begun_after(stage: Stage, script: list[list[Call]]) -> None:
    """Nobody interrupts: the commit that would begin it is refused."""
    run_id = cancelled_after_its_first_turn(stage, script, nobody_interrupts)
    stage.until_state(run_id, "cancelled")
    stage.until_quiet(run_id)
    assert stage.outside.sent == []
    assert stage.notes(run_id) == []
    assert states(stage, run_id) == set()


def test_control_when_a_claim_does_not_ask_it_is_sent(stage: Stage) -> None:
    run_id = cancelled_after_its_first_turn(stage, ASKED_FOR, claims_while_cancelling)
    stage.outside.until_sent(1)
    stage.until_state(run_id, "cancelled")


def test_control_when_a_transaction_does_not_ask_it_is_written(stage: Stage) -> None:
    run_id = cancelled_after_its_first_turn(stage, WRITTEN, claims_while_cancelling)
    stage.until_state(run_id, "cancelled")
    assert [note["text"] for note in stage.notes(run_id)] == ["never"]


def test_asking_twice_is_asking_once_and_a_decision_comes_too_late(stage: Stage) -> None:
    """An approval that was asked for while the run still ran."""
    worker = stage.working("segment.before_end:1:stop")
    run_id = stage.script([("gated_send", {"text": "never"})])
    worker.until_it_stops()
    stage.cancel(run_id)
    stage.cancel(run_id)
    assert [approval["state"] for approval in stage.approvals(run_id)] == ["void"]
    worker.signal(signal.SIGCONT)
    stage.until_state(run_id, "cancelled")
    stage.cancel(run_id)
    stage.until_quiet(run_id)
    ended(stage, run_id)


def cancelled_after_its_first_turn(stage: Stage, script: list[list[Call]], broken: Callable[[], None]) -> str:
    worker = stage.working("segment.turn.after_commit:1:stop", broken=broken)
    run_id = stage.script(*script)
    worker.until_it_stops()
    stage.cancel(run_id)
    worker.signal(signal.SIGCONT)
    return run_id


def ended(stage: Stage, run_id: str) -> None:
    """Who cancelled it is kept, each fact is told once, nothing was begun, and the engine is at rest."""
    told = [row["name"] for row in stage.timeline(run_id, "event")]
    assert (told.count("run.cancelling"), told.count("run.cancelled")) == (1, 1)
    assert stage.rows("select reason from surefoot.runs where run_id = %s", run_id) == [
        {"reason": "ada: the wrong month"}
    ]
    assert stage.notes(run_id) == []
    assert stage.outside.of("never") == []
    assert len(stage.model_requests()) == 1
    until("the engine has ended its workflow", lambda: stage.engine_rows(run_id, "SUCCESS") == 1)
    outcomes = stage.rows("select state, outcome from surefoot.segments where run_id = %s", run_id)
    assert outcomes == [{"state": "settled", "outcome": "cancelled"}]


def states(stage: Stage, run_id: str) -> set[str]:
    """Of the run's actions."""
    return {row["state"] for row in stage.rows("select state from surefoot.actions where run_id = %s", run_id)}


def nobody_interrupts() -> None:
    async def nobody(self: Interrupts) -> None:
        pass

    Interrupts.run_once = nobody


def claims_while_cancelling() -> None:
    nobody_interrupts()
    events._RUNS = {**events._RUNS, "number_fenced": events._RUNS["number_fenced_or_cancelling"]}
