"""A run that is delayed begins when it is due, whoever died since it was started; cancelled before that, never."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from tests.kit import until
from tests.stage import Stage
from transactions import admitting

BEGAN = "select min(at) as at from surefoot.events where run_id = %s and kind = 'segment.began'"
DELAYED = "select surefoot.start_run('scripted', '{\"turns\": []}', not_before => %s) as run_id"


def test_a_delayed_run_begins_when_it_is_due_and_not_before(stage: Stage) -> None:
    dying = stage.working("queue.look.before_commit:12")
    due = datetime.now(UTC) + timedelta(seconds=2)
    delayed, cancelled = (stage.rows(DELAYED, due)[0]["run_id"] for _ in range(2))
    stage.cancel(cancelled)
    assert stage.rows("select due_at from surefoot.run_status where run_id = %s", delayed)[0]["due_at"] == due
    assert dying.until_it_dies() == -9
    stage.working()
    stage.until_state(delayed, "completed")
    assert stage.rows(BEGAN, delayed)[0]["at"] >= due
    assert stage.state(cancelled) == "cancelled"
    assert stage.rows(BEGAN, cancelled)[0]["at"] is None


def test_control_where_the_time_is_not_asked_for_it_begins_at_once(stage: Stage) -> None:
    stage.working(broken=everything_is_due)
    run_id = stage.rows(DELAYED, datetime.now(UTC) + timedelta(hours=1))[0]["run_id"]
    until("it is over long before", lambda: stage.state(run_id) == "completed")


def everything_is_due() -> None:
    statements: dict[str, Any] = dict(admitting._QUEUE)
    guard = "s.queued_at <= clock_timestamp()"
    assert guard in statements["lock_and_ripen"].text
    statements["lock_and_ripen"] = text(statements["lock_and_ripen"].text.replace(guard, "true"))
    admitting._QUEUE = statements
