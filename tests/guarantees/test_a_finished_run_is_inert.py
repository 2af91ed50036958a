"""Whatever comes for a finished run, from a caller, the engine, the outbox or a manager: nobody is asked anything."""

from typing import Any

import httpx
import pytest

from tests.kit import until
from tests.stage import Stage

SCRIPT = [
    [("note", {"text": "saved"}), ("send", {"text": "ungated"})],
    [("gated_send", {"text": "the report"}), ("tell", {"text": "it is published"})],
]
KEY = "august"


@pytest.fixture
def finished(stage_with_mail: Stage) -> tuple[Stage, httpx.Client, str]:
    """A run that has done everything once, on a worker that still lives, with its API."""
    stage = stage_with_mail
    _, api = stage.serve()
    run_id = stage.script(*SCRIPT, key=KEY)
    stage.until_state(run_id, "waiting")
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert requests(stage) == {"model": 3, "outside": 2, "mails": 1, "notes": 1}
    return stage, api, run_id


def test_a_finished_run_is_inert(finished: tuple[Stage, httpx.Client, str]) -> None:
    stage, api, run_id = finished
    before = requests(stage)
    body = {"agent": "scripted", "input": {"turns": SCRIPT}}
    assert api.post("/runs", json=body, headers={"Idempotency-Key": KEY}).json()["run_id"] == run_id
    assert stage.script(*SCRIPT, key=KEY) == run_id
    for approval in stage.approvals(run_id):
        answer = api.post(f"/approvals/{approval['approval_id']}/decision", json={"decision": "approve"})
        assert answer.status_code == 409
    stage.rows("select surefoot.enqueue_segment(%s, 0)", run_id)
    execute_again(stage, run_id)
    deliver_again(stage, run_id)
    assert stage.state(run_id) == "completed"
    assert requests(stage) == before


def test_control_an_unfinished_run_reacts_to_the_engine(finished: tuple[Stage, httpx.Client, str]) -> None:
    """The same call of the engine does reach the model when the run's own row does not say that it is over."""
    stage, _, run_id = finished
    before = requests(stage)
    stage.forced("update surefoot.segments set state = 'open', settled_at = null, outcome = null where n = 1")
    stage.forced("update surefoot.runs set state = 'running', ended_at = null where run_id = %s", run_id)
    execute_again(stage, run_id)
    stage.until_state(run_id, "completed")
    assert requests(stage)["model"] == before["model"] + 1


def test_control_what_the_ledger_and_the_inbox_forget_is_sent_again(finished: tuple[Stage, httpx.Client, str]) -> None:
    stage, _, run_id = finished
    before = requests(stage)
    stage.forced("update surefoot.runs set state = 'waiting', ended_at = null where run_id = %s", run_id)
    forgotten = "state = 'PREPARED', settled_at = null, result = null where tool = 'send'"
    stage.forced(f"update surefoot.actions set {forgotten}")
    stage.rows("delete from surefoot.inbox")
    deliver_again(stage, run_id)
    after = requests(stage)
    assert after["outside"] == before["outside"] + 1
    assert after["mails"] == before["mails"] + 1


def requests(stage: Stage) -> dict[str, int]:
    """How often the model and the world were asked for anything, and what was written here."""
    return {
        "model": len(stage.model_requests()),
        "outside": len(stage.outside.sent) + len(stage.outside.looked_up),
        "mails": len(stage.world.submissions()),
        "notes": stage.rows("select count(*) as n from scripted.notes")[0]["n"],
    }


def execute_again(stage: Stage, run_id: str) -> None:
    """A recovery gone wrong: every segment is pending at a dead worker, and the engine remembers none of its steps."""
    mine = "where workflow_uuid like %s || ':%%'"
    stage.rows(f"delete from dbos.operation_outputs {mine}", run_id)
    pending = "status = 'PENDING', executor_id = 'dead', owner_xid = null, completed_at = null"
    executions = len(stage.rows(f"update dbos.workflow_status set {pending} {mine} returning 1", run_id))
    assert executions == 2
    until("the engine has executed them all", lambda: stage.engine_rows(run_id, "SUCCESS") == executions)
    executed_by = stage.rows(f"select executor_id from dbos.workflow_status {mine}", run_id)
    assert "dead" not in {row["executor_id"] for row in executed_by}


def deliver_again(stage: Stage, run_id: str) -> None:
    """Every entry of the run is due again, for every consumer, as if nobody had taken it."""
    due = (
        "update surefoot.outbox_deliveries d set state = 'pending', settled_at = null, due_at = clock_timestamp() "
        "from surefoot.outbox_entries e where e.entry_id = d.entry_id and e.run_id = %s returning d.entry_id, d.attempt"
    )
    attempts: dict[str, Any] = {row["entry_id"]: row["attempt"] for row in stage.forced(due, run_id)}
    assert len(attempts) == 3
    again = "select entry_id, attempt from surefoot.outbox_deliveries where entry_id = any(%s)"

    def delivered() -> bool:
        rows = stage.rows(again, list(attempts))
        return all(row["attempt"] > attempts[row["entry_id"]] for row in rows)

    until("each entry was taken up once more", delivered)
    stage.until_quiet(run_id)
