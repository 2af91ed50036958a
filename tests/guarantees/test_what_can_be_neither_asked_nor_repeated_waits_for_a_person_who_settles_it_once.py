"""An effect whose other side honours no key and cannot be searched: nobody guesses, a person says what happened."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from app import Surefoot
from app.acting import Acting
from steps.drive import Drive
from tests.agents.scripted import AGENTS
from tests.kit import acting, until
from tests.stage import Stage
from transactions import Conflict, InvalidInput

T = TypeVar("T")
SCRIPT = [[("send_blindly", {"text": "a"}), ("note", {"text": "behind"})], [("note", {"text": "after"})]]


def test_what_can_be_neither_asked_nor_repeated_waits_for_a_person_who_settles_it_once(stage: Stage) -> None:
    run_id, action_id = unknown(stage, "effect.after_send")
    said = stage.command("actions", "list").stdout
    assert action_id in said
    assert "can be said now: succeeded" in said
    with pytest.raises(InvalidInput, match="send_blindly does not answer that"):
        ask(stage, lambda eve: eve.settle(action_id, "succeeded", result="no number"))
    stage.sign_in("eve", "admin")
    settled = stage.command("actions", "settle", action_id, "succeeded", "--result", "1")
    assert settled.stdout == f"succeeded; run {run_id} goes on\n"
    with pytest.raises(Conflict, match=r"eve said succeeded of attempt 1 at .+ and one decision counts"):
        ask(stage, lambda joe: joe.settle(action_id, "failed", reason="it did not"), as_="joe")
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [sent.text for sent in stage.outside.sent] == ["a"]
    assert stage.outside.looked_up == []
    assert stage.told(run_id)[0] == ["send_blindly", "success", "1"]
    how = [(row["what"], row["how"]) for row in stage.timeline(run_id, "attempt", "decision", "receipt")]
    assert how[:3] == [("attempt", "unknown"), ("decision", "succeeded"), ("receipt", "person")]
    shown = stage.command("actions", "show", action_id).stdout
    assert "eve says of attempt 1: succeeded" in shown
    assert "receipt (person) of attempt 1: 1" in shown
    assert stage.command("actions", "list").stdout == "the desk is empty\n"


def test_what_a_person_says_did_not_happen_is_sent_once(stage: Stage) -> None:
    run_id, action_id = unknown(stage, "effect.before_send")
    until("absent is believed", lambda: "absent" in can(stage, action_id))
    ask(stage, lambda eve: eve.settle(action_id, "absent", reason="nothing there"))
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in stage.outside.sent] == ["a"]
    assert [note["text"] for note in stage.notes(run_id)] == ["behind", "after"]


def test_what_a_person_says_failed_is_told_to_the_model(stage: Stage) -> None:
    run_id, action_id = unknown(stage, "effect.after_send")
    ask(stage, lambda eve: eve.settle(action_id, "failed", reason="card declined"))
    stage.until_state(run_id, "completed")
    assert stage.told(run_id)[0] == ["send_blindly", "failed", "eve says that it failed: card declined"]
    assert len(stage.outside.sent) == 1


def test_control_when_somebody_guesses_that_it_did_not_happen_it_happens_twice(stage: Stage) -> None:
    worker = stage.working("effect.after_send")
    run_id = stage.script(*SCRIPT)
    assert worker.until_it_dies() == -9
    stage.rows("update surefoot.actions set attempt_deadline_at = clock_timestamp() where state = 'IN_FLIGHT'")
    stage.working(broken=nobody_is_asked)
    stage.until_state(run_id, "completed")
    assert [sent.text for sent in stage.outside.sent] == ["a", "a"]


def unknown(stage: Stage, point: str) -> tuple[str, str]:
    """A run that waits for a person, and the action; the worker that sent it, or was about to, died there."""
    first = stage.working(point)
    run_id = stage.script(*SCRIPT)
    assert first.until_it_dies() == -9
    stage.working()
    stage.until_state(run_id, "waiting")
    state = "select state from surefoot.actions where run_id = %s and state = 'UNKNOWN'"
    until("its outcome is unknown", lambda: stage.rows(state, run_id))
    return run_id, f"{run_id}/1/0:send_blindly"


def can(stage: Stage, action_id: str) -> list[str]:
    return stage.rows("select can from surefoot.unknown_actions where action_id = %s", action_id)[0]["can"]


def ask(stage: Stage, call: Callable[[Acting], Awaitable[T]], as_: str = "eve") -> T:
    async def once() -> T:
        surefoot = Surefoot(stage.database_url, AGENTS)
        try:
            return await call(await acting(surefoot, as_, "admin"))
        finally:
            await surefoot.close()

    return asyncio.run(once())


def nobody_is_asked() -> None:
    load = Drive.row

    async def idempotent(self: Drive) -> Any:
        return {**await load(self), "safety": "idempotent"}

    Drive.row = idempotent
