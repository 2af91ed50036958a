"""Frozen for longer than its lease, a worker wakes to nothing: others have gone on, and it ends without a write."""

import signal
from types import SimpleNamespace
from typing import Any

from steps import sending
from tests.stage import Stage
from transactions.lease import EXIT_LEASE_LOST, Lease

LEASE = {"SUREFOOT_LEASE_S": "3"}
SCRIPT = [[("note", {"text": "saved"})], [("send", {"text": "the report"})]]
POINTS = (
    "tool.transaction.before_commit",  # its rows are written and locked, not committed
    "tool.transaction.after_commit",
    "tool.effect.after_commit",  # the action is its own, and not sent
    "effect.after_send",  # sent and answered, no receipt
    "step.before_record",
)


def test_a_worker_that_lost_its_lease_ends(stage: Stage) -> None:
    frozen, run_ids = [], []
    for point in POINTS:
        frozen.append(stage.working(f"{point}:1:stop", **LEASE))
        run_ids.append(stage.script(*SCRIPT))
        frozen[-1].until_it_stops()
    stage.working(SUREFOOT_LEASE_S="60")
    for run_id in run_ids:
        stage.until_state(run_id, "completed")
        stage.until_quiet(run_id)
    before = everything(stage)
    for worker in frozen:
        worker.signal(signal.SIGCONT)
    assert [worker.until_it_dies() for worker in frozen] == [EXIT_LEASE_LOST] * len(POINTS)
    stage.until_nothing_is_written()
    assert everything(stage) == before
    assert len({sent.reference for sent in stage.outside.sent}) == len(stage.outside.sent) == len(POINTS)
    assert [len(stage.notes(run_id)) for run_id in run_ids] == [1] * len(POINTS)


def test_control_one_that_does_not_heed_its_lease_sends_again(stage: Stage) -> None:
    frozen = stage.working("tool.effect.after_commit:1:stop", broken=heeds_no_lease, **LEASE)
    run_id = stage.script(*SCRIPT)
    frozen.until_it_stops()
    second = stage.working(SUREFOOT_LEASE_S="60")
    stage.until_state(run_id, "completed")
    frozen.signal(signal.SIGCONT)
    stage.outside.until_sent(2)
    assert [sent.pid for sent in stage.outside.sent] == [second.pid, frozen.pid]
    assert len({sent.reference for sent in stage.outside.sent}) == 1


def test_one_whose_loop_stands_still_ends_too(stage: Stage) -> None:
    """Its lease would be renewed for ever: on a thread, whatever a tool has stopped."""
    env = {"SUREFOOT_STILL_S": "1", "SUREFOOT_LEASE_S": "60"}
    still = stage.working(TEST_HANGS="1", **env)
    waits = stage.script([("hang", {"how": "waits"})])
    still.until_it_says("hangs and waits")
    stops = stage.script([("note", {"text": "saved"})], [("hang", {"how": "stops the loop"})])
    still.until_it_says("hangs and stops the loop")
    assert still.until_it_dies() == EXIT_LEASE_LOST
    stage.working(**env)
    for run_id in (waits, stops):
        stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(stops)] == ["saved"]


def heeds_no_lease() -> None:
    def nothing(_: Lease) -> None:
        return

    Lease.check = Lease._guard_loop = Lease._renew_loop = nothing
    sending.time = SimpleNamespace(monotonic=lambda: 0.0)  # nor that its attempt is over


TABLES = (
    ("surefoot.runs", "run_id"),
    ("surefoot.segments", "run_id, n"),
    ("surefoot.steps", "run_id, segment, position, generation"),
    ("surefoot.model_messages", "run_id, seq"),
    ("surefoot.actions", "action_id"),
    ("surefoot.attempts", "action_id, attempt"),
    ("surefoot.verifications", "action_id, n"),
    ("surefoot.receipts", "receipt_id"),
    ("surefoot.outbox_deliveries", "entry_id, consumer"),
    ("surefoot.events", "run_id, seq"),
    ("scripted.notes", "note"),
    ("dbos.workflow_status", "workflow_uuid"),
    ("dbos.operation_outputs", "workflow_uuid, function_id"),
)


def everything(stage: Stage) -> dict[str, list[dict[str, Any]]]:
    """Every row that a worker could write for a run."""
    return {table: stage.rows(f"select * from {table} order by {key}") for table, key in TABLES}
