"""Effects that only a person can say something of wait through restarts for as long as nobody does, and nobody asks."""

from tests.crowd import SLACK, at_rest, copy, cost, no_more
from tests.kit import until
from tests.stage import Stage

MANY = 10_000


def test_ten_thousand_unknown_effects_wait_for_people_and_cost_nothing(stage: Stage) -> None:
    first = stage.working("effect.after_send")
    run_id = stage.script([("send_blindly", {"text": "a"})])
    assert first.until_it_dies() == -9
    worker = stage.working()
    stage.until_state(run_id, "waiting")
    until("it is on the desk", lambda: on_desk(stage) == 1)
    idle = at_rest(stage, worker)
    copy(stage, run_id, MANY - 1)
    before = facts(stage)
    assert on_desk(stage) == MANY
    with_many = no_more(stage, worker, idle)
    worker.kill()
    again = stage.working()
    after_a_restart = no_more(stage, again, idle)
    print(f"idle {idle}, with {MANY} {with_many}, after a restart {after_a_restart}")
    assert facts(stage) == before
    assert len(stage.outside.sent) == 1
    for found in (with_many, after_a_restart):
        assert found.transactions <= SLACK * idle.transactions + 3
        assert found.rows_read <= SLACK * idle.rows_read + MANY / 2  # nothing reads through them, not once
    action_id = f"{run_id}x{MANY // 2}/1/0:send_blindly"
    settled = stage.command("actions", "settle", action_id, "succeeded", "--result", "1")
    assert settled.returncode == 0
    stage.until_state(action_id.partition("/")[0], "completed")
    assert on_desk(stage) == MANY - 1


def test_control_what_is_asked_again_and_again_costs_more(stage: Stage) -> None:
    first = stage.working("effect.after_send")
    run_id = stage.script([("send_blindly", {"text": "a"})])
    assert first.until_it_dies() == -9
    worker = stage.working()
    until("it is on the desk", lambda: on_desk(stage) == 1)
    copy(stage, run_id, MANY // 10)
    idle = cost(stage, worker)
    stage.rows("update surefoot.outbox_deliveries set state = 'pending' where state = 'parked'")
    busy = cost(stage, worker)
    assert busy.transactions > SLACK * idle.transactions + 3


def on_desk(stage: Stage) -> int:
    unknown = "select count(*) as n from surefoot.unknown_actions where waits_for = 'person' and state = 'UNKNOWN'"
    return int(stage.rows(unknown)[0]["n"])


def facts(stage: Stage) -> list[dict[str, object]]:
    """All that would change if anybody did anything to one of them."""
    return stage.rows(
        "select (select sum(event_seq) from surefoot.runs) as events, (select sum(generation) from surefoot.runs) as "
        "generations, (select count(*) from surefoot.attempts) as attempts, (select sum(attempt) from "
        "surefoot.outbox_deliveries) as claims, (select count(*) from surefoot.verifications) as verdicts"
    )
