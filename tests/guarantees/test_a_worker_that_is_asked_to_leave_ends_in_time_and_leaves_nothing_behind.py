"""SIGTERM: what comes to a boundary ends there, what hangs is fenced and handed over, and the process ends with 0."""

import signal
import time

import pytest

from app import worker
from tests.kit import Process
from tests.stage import Call, Stage

DRAIN_S = 2.0
JITTER_S = 2.0  # of a machine on which other tests run
# One run each: a worker that is asked to leave is at it.
LEAVING = {"SUREFOOT_DRAIN_S": f"{DRAIN_S}", "SUREFOOT_RUNS_AT_ONCE": "1", "SUREFOOT_LEASE_S": "60", "TEST_HANGS": "1"}
NOTE: list[Call] = [("note", {"text": "before"})]
HANGS: dict[str, list[list[Call]]] = {
    "waits": [NOTE, [("hang", {"how": "waits"})]],
    "heeds nothing": [NOTE, [("hang", {"how": "heeds nothing"})]],
    "stops the loop": [NOTE, [("hang", {"how": "stops the loop"})]],
    "sleeps in a thread": [NOTE, [("hang_in_a_thread", {"how": "sleeps in a thread"})]],
    "thinks": [NOTE],  # a model that does not answer
}
PENDING = "select workflow_uuid from dbos.workflow_status where status = 'PENDING'"


def test_a_worker_that_is_asked_to_leave_ends_in_time_and_leaves_nothing_behind(stage: Stage) -> None:
    leaving: list[Process] = []
    run_ids: list[str] = []
    for how, turns in HANGS.items():
        leaving.append(stage.working(**LEAVING, **({"TEST_MODEL_HANGS": "1"} if how == "thinks" else {})))
        run_ids.append(stage.script(*turns))
        leaving[-1].until_it_says(f"hangs and {how}")
    asked_at = time.monotonic()
    for one in leaving:
        one.signal(signal.SIGTERM)
    assert [one.until_it_dies() for one in leaving] == [0] * len(leaving)
    assert time.monotonic() - asked_at < DRAIN_S + JITTER_S
    assert stage.rows(PENDING) == []
    assert {row["state"] for row in stage.rows("select state from surefoot.workers")} == {"released"}
    assert stage.rows("select * from surefoot.stranded") == [], "they are in the queue, for whoever comes next"
    stage.working()
    assert stage.rows("select * from surefoot.stranded") == []
    for run_id in run_ids:
        stage.until_state(run_id, "completed")
        assert [note["text"] for note in stage.notes(run_id)] == ["before"]


def test_what_does_not_hang_comes_to_its_boundary(stage: Stage) -> None:
    """A turn that is under way is finished, and nothing of it is done again."""
    leaving = stage.working(SUREFOOT_DRAIN_S="30")
    with stage.outside.held():
        run_id = stage.script([("send", {"text": "a"}), ("note", {"text": "b"})], [("note", {"text": "c"})])
        stage.outside.until_sent(1)
        leaving.signal(signal.SIGTERM)
    assert leaving.until_it_dies() == 0
    assert stage.state(run_id) == "queued"
    assert [(row["segment"], row["turns"]) for row in stage.rows("select segment, turns from surefoot.runs")] == [
        (1, 1)
    ]
    second = stage.working()
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["b", "c"]
    assert [sent.pid for sent in stage.outside.sent] == [leaving.pid]
    assert {pid for pid, turn in stage.model_requests() if turn == 0} == {leaving.pid}
    assert {pid for pid, turn in stage.model_requests() if turn > 0} == {second.pid}


@pytest.mark.parametrize("how", ["waits", "stops the loop"])
def test_to_be_handed_over_again_and_again_is_not_to_die(stage: Stage, how: str) -> None:
    run_id = None
    for _ in range(3):
        leaving = stage.working(**{**LEAVING, "SUREFOOT_DRAIN_S": "0"})
        run_id = run_id or stage.script(*HANGS[how])
        leaving.until_it_says(f"hangs and {how}")
        assert stage.rows("select stalls from surefoot.runs") == [{"stalls": 0}]
        leaving.signal(signal.SIGTERM)
        assert leaving.until_it_dies() == 0
    handed = "select count(*) as n from surefoot.run_timeline where run_id = %s and name = 'segment.handed_over'"
    assert stage.rows(handed, run_id) == [{"n": 3}]


def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(stage: Stage) -> None:
    leaving = stage.working(**{**LEAVING, "SUREFOOT_DRAIN_S": "600"})
    run_id = stage.script(*HANGS["waits"])
    leaving.until_it_says("hangs and waits")
    leaving.signal(signal.SIGTERM)
    stage.working()
    leaving.signal(signal.SIGTERM)
    assert leaving.until_it_dies() == 128 + signal.SIGTERM
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["before"]


def test_control_one_that_hands_over_nothing_leaves_it_to_the_others(stage: Stage) -> None:
    leaving = stage.working(broken=hands_over_nothing, **LEAVING)
    run_id = stage.script(*HANGS["waits"])
    leaving.until_it_says("hangs and waits")
    leaving.signal(signal.SIGTERM)
    assert leaving.until_it_dies() == 0
    assert stage.rows(PENDING) == [{"workflow_uuid": f"{run_id}:0"}]


def hands_over_nothing() -> None:
    async def nothing(_: worker.Worker) -> None:
        return

    worker.Worker._hand_over = nothing
