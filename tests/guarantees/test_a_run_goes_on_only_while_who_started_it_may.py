"""A run acts in the right of whoever started it. When they have lost it, the run is held and does nothing more."""

import asyncio
from collections.abc import Callable

import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import acting
from tests.stage import Call, Stage
from transactions import principals

LOST = {
    "disabled": "update surefoot.principals set disabled_at = clock_timestamp() where name = 'bob'",
    "no operator any more": "update surefoot.principals set roles = '{viewer}' where name = 'bob'",
}
GIVEN_BACK = "update surefoot.principals set disabled_at = null, roles = '{operator}' where name = 'bob'"


@pytest.mark.parametrize("why", LOST)
def test_it_is_held_until_they_have_the_right_again(stage: Stage, why: str) -> None:
    run_id = waits_for_a_manager(stage)
    stage.rows(LOST[why])
    stage.says("ada", "approve", stage.approvals(run_id)[0]["approval_id"])
    stage.until_state(run_id, "held")
    [row] = stage.rows("select reason from surefoot.runs where run_id = %s", run_id)
    assert row["reason"].startswith(f"bob, who started it, is {why}")
    assert stage.outside.sent == []
    stage.rows(GIVEN_BACK)
    assert stage.command("runs", "release", run_id).returncode == 0
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["a"]


def test_control_without_the_question_it_is_done_in_nobodys_right(stage: Stage) -> None:
    run_id = waits_for_a_manager(stage, broken=nobody_is_asked)
    stage.rows(LOST["disabled"])
    stage.says("ada", "approve", stage.approvals(run_id)[0]["approval_id"])
    stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 1


def waits_for_a_manager(stage: Stage, broken: Callable[[], None] | None = None) -> str:
    stage.working(broken=broken)
    run_id = started_by_bob(stage, [("gated_send", {"text": "a"})])
    stage.until_state(run_id, "waiting")
    return run_id


def started_by_bob(stage: Stage, *turns: list[Call]) -> str:
    async def start() -> str:
        surefoot = Surefoot(stage.database_url, AGENTS)
        try:
            bob = await acting(surefoot, "bob", "operator")
            return await bob.start("scripted", {"turns": turns})
        finally:
            await surefoot.close()

    return asyncio.run(start())


def nobody_is_asked() -> None:
    async def lost_right(*_: object) -> None:
        return

    principals.lost_right = lost_right
