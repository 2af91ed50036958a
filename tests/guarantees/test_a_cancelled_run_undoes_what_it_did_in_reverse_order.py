"""A run that is over is asked to undo what it did: each effect once, the last first, whoever dies meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import text

from app import Surefoot
from steps import Absent, Refused, sending, verifying
from tests.agents.scripted import AGENTS
from tests.kit import until
from tests.stage import Stage
from transactions import Conflict, NotFound, UnknownAgent, undo
from transactions.statements import load

T = TypeVar("T")
DONE = ["a", "b", "c"]
UNDONE = ["take back 3", "take back 2", "take back 1"]
ENDS_WAITING = [("gated_send", {"text": "never"})]


def test_a_cancelled_run_undoes_what_it_did_in_reverse_order(stage: Stage) -> None:
    run_id = cancelled(stage)
    stage.working()  # a second worker, which could be quicker
    listed = stage.command("runs", "undo", run_id, "--list").stdout
    assert listed.count("can be undone: ask for it") == 3
    stage.sign_in("eve", "admin")
    asked = stage.command("runs", "undo", run_id, "--reason", "the wrong month")
    assert asked.stdout.count("under way: nothing") + asked.stdout.count("undone: nothing") == 3
    until_undone(stage, run_id)
    assert [sent.text for sent in stage.outside.sent] == DONE + UNDONE
    [event] = stage.rows("select data from surefoot.events where run_id = %s and kind = 'run.undo_requested'", run_id)
    assert (event["data"]["by"], event["data"]["reason"]) == ("eve", "the wrong month")
    assert event["data"]["actions"] == [f"{run_id}/{turn}/0:place!undo" for turn in (3, 2, 1)]
    assert stage.state(run_id) == "cancelled"
    assert stage.rows("select 1 from surefoot.actions where tool = 'gated_send' and state <> 'CANCELLED'") == []


def test_killed_while_undoing_each_is_undone_once(stage: Stage) -> None:
    run_id = cancelled(stage, then_nobody_works=True)
    ask(stage, lambda surefoot: surefoot.undo(run_id))
    for point in ("effect.after_send", "effect.before_send", "effect.answered.after_commit"):
        assert stage.working(point).until_it_dies() == -9
    stage.working()
    until_undone(stage, run_id)
    assert [sent.text for sent in stage.outside.sent] == DONE + UNDONE


def test_control_with_every_verdict_replaced_by_absent_it_is_undone_twice(stage: Stage) -> None:
    run_id = cancelled(stage, then_nobody_works=True)
    ask(stage, lambda surefoot: surefoot.undo(run_id))
    assert stage.working("effect.after_send").until_it_dies() == -9
    stage.rows("update surefoot.actions set attempt_deadline_at = clock_timestamp() where state = 'IN_FLIGHT'")
    stage.working(broken=every_verdict_is_absent)
    until_undone(stage, run_id)
    assert [sent.text for sent in stage.outside.sent] == [*DONE, "take back 3", *UNDONE]


def test_control_with_the_list_the_other_way_round_the_first_goes_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = cancelled(stage)
    ascending = load("undo")["effects_of_run"].text.replace("order by a.settled_at desc nulls first", "order by a.turn")
    monkeypatch.setattr(undo, "_UNDO", {**load("undo"), "effects_of_run": text(ascending)})
    ask(stage, lambda surefoot: surefoot.undo(run_id))
    until_undone(stage, run_id)
    assert [sent.text for sent in stage.outside.sent] == [*DONE, *reversed(UNDONE)]


def test_control_without_their_order_they_go_at_once(stage: Stage) -> None:
    """With what comes first held outside, the others arrive there only where nobody looks at the order."""
    run_id = cancelled(stage)
    with stage.outside.held():
        ask(stage, lambda surefoot: surefoot.undo(run_id))
        stage.outside.until_sent(4)
        stage.until_state(stage.script([("note", {"text": "time passes"})]), "completed")
        assert [sent.text for sent in stage.outside.sent[3:]] == ["take back 3"]
        stage.rows("update surefoot.outbox_entries set key = null, key_seq = null where key is not null")
        stage.outside.until_sent(6)
    until_undone(stage, run_id)


def test_who_asks_twice_asks_once_and_a_live_run_refuses(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("place", {"text": "a"})], ENDS_WAITING)
    stage.until_state(run_id, "waiting")
    refused = stage.command("runs", "undo", run_id)
    assert f"Run {run_id} is waiting and may still do more: cancel it first, or wait" in refused.stderr
    stage.command("runs", "cancel", run_id)
    _, api = stage.serve()
    for _ in range(3):
        answer = api.post(f"/runs/{run_id}/undo", json={"reason": "again"})
        assert (answer.status_code, len(answer.json())) == (202, 1)
        assert answer.json()[0]["undo_id"] == f"{run_id}/1/0:place!undo"
    until_undone(stage, run_id, 1)
    [done] = api.get(f"/runs/{run_id}/undo").json()
    assert (done["standing"], done["tool"], done["result"]) == ("undone", "place", 1)
    assert api.post(f"/runs/{run_id}/undo").json()[0]["standing"] == "undone"
    assert len(stage.rows("select 1 from surefoot.events where kind = 'run.undo_requested'")) == 1
    assert [sent.text for sent in stage.outside.sent] == ["a", "take back 1"]
    assert api.get("/runs/nope/undo").status_code == 404


def test_what_cannot_be_undone_is_said(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("send", {"text": "a"}), ("note", {"text": "b"})])
    stage.until_state(run_id, "completed")
    with pytest.raises(Conflict, match=f"^Run {run_id} did nothing that can be undone\\.$"):
        ask(stage, lambda surefoot: surefoot.undo(run_id))
    [done] = ask(stage, lambda surefoot: surefoot.undoable(run_id))
    assert (done.standing, done.next) == ("no_undo", "its tool names no undo: look there yourself")
    with pytest.raises(NotFound):
        ask(stage, lambda surefoot: surefoot.undo("nope"))
    with pytest.raises(UnknownAgent, match="SUREFOOT_AGENTS"):
        ask(stage, lambda surefoot: surefoot.undo(run_id), agents=[])


def test_one_that_fails_holds_no_other_back_and_can_be_asked_again(stage: Stage) -> None:
    run_id = cancelled(stage, then_nobody_works=True)
    ask(stage, lambda surefoot: surefoot.undo(run_id))
    refusing = stage.working(broken=the_second_refuses)
    until("all have settled", lambda: standings(stage, run_id) == ["undone", "undo_failed", "undone"])
    [failed] = [done for done in ask(stage, lambda s: s.undoable(run_id)) if done.standing == "undo_failed"]
    assert failed.why == "Refused: not that one"
    refusing.kill()
    stage.working()
    ask(stage, lambda surefoot: surefoot.undo(run_id))
    until_undone(stage, run_id)
    assert [sent.reference for sent in stage.outside.sent][3:] == [
        f"{run_id}/3/0:place!undo",
        f"{run_id}/1/0:place!undo",
        f"{run_id}/2/0:place!undo~2",
    ]


def test_an_undo_whose_outcome_is_unknown_is_on_the_desk_and_the_next_waits_for_it(stage: Stage) -> None:
    run_id = cancelled(stage, "place_for_good", then_nobody_works=True)
    ask(stage, lambda surefoot: surefoot.undo(run_id))
    assert stage.working("effect.after_send").until_it_dies() == -9
    stage.working()
    action_id = f"{run_id}/3/0:place_for_good!undo"
    until("it is on the desk", lambda: [row for row in ask(stage, lambda s: s.desk()).unknown if row["can"]])
    assert len(stage.outside.sent) == 4
    said = stage.command("actions", "settle", action_id, "succeeded", "--result", "null")
    assert said.returncode == 0, said.stderr
    until_undone(stage, run_id)
    assert [sent.text for sent in stage.outside.sent] == DONE + UNDONE


def test_what_nobody_knows_of_is_to_be_settled_first(stage: Stage) -> None:
    worker = stage.working("effect.after_send:2")
    run_id = stage.script([("place", {"text": "a"})], [("send_blindly", {"text": "b"})], agent="hasty")
    assert worker.until_it_dies() == -9
    stage.working()
    stage.until_state(run_id, "waiting")
    stage.command("runs", "cancel", run_id)
    said = stage.command("runs", "undo", run_id).stdout.splitlines()
    assert said[0] == f"{run_id}/2/0:send_blindly"
    assert "unknown: nobody knows yet whether it happened: first settle it on the desk" in said[2]
    until_undone(stage, run_id, 1)
    assert [sent.text for sent in stage.outside.sent] == ["a", "b", "take back 1"]


def cancelled(stage: Stage, tool: str = "place", *, then_nobody_works: bool = False) -> str:
    """A run that did three things outside and was cancelled when it waited for an approval."""
    worker = stage.working()
    run_id = stage.script(*([(tool, {"text": name})] for name in DONE), ENDS_WAITING)
    stage.until_state(run_id, "waiting")
    if then_nobody_works:
        worker.kill()
    ask(stage, lambda surefoot: surefoot.cancel(run_id))
    return run_id


def standings(stage: Stage, run_id: str) -> list[str]:
    return [done.standing for done in ask(stage, lambda surefoot: surefoot.undoable(run_id))]


def until_undone(stage: Stage, run_id: str, many: int = 3) -> None:
    until("all is undone", lambda: standings(stage, run_id).count("undone") == many)


def ask(stage: Stage, call: Callable[[Surefoot], Awaitable[T]], agents: Any = AGENTS) -> T:
    async def once() -> T:
        surefoot = Surefoot(stage.database_url, agents)
        try:
            return await call(surefoot)
        finally:
            await surefoot.close()

    return asyncio.run(once())


def every_verdict_is_absent() -> None:
    async def verdict(*_: Any) -> Absent:
        return Absent("handed in by a test")

    verifying._verdict = verdict


def the_second_refuses() -> None:
    body = sending.call_body

    async def call(function: Any, first: Any, arguments: dict[str, Any]) -> Any:
        if arguments == {"number": 2}:
            raise Refused("not that one")
        return await body(function, first, arguments)

    sending.call_body = call
