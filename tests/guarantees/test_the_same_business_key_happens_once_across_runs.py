"""Two runs that ask for the same business key share one action, whoever of them dies, is cancelled or comes late."""

import uuid
from typing import Any
from urllib.parse import quote

import pytest

from app import watchdog
from steps import effects
from steps.spec import Spec
from tests.kit import until
from tests.stage import Stage

SEND = ("named_send", {"text": "August", "name": "2013-08"})
ACTION = "default/named_send:2013-08"


@pytest.mark.parametrize("tool", ["named_send", "named_note"])
def test_the_same_business_key_happens_once_across_runs(stage: Stage, tool: str) -> None:
    """Asked for by many at the same moment, in two workers."""
    stage.announce()
    run_ids = [stage.script([(tool, {"text": "August", "name": "2013-08"})]) for _ in range(6)]
    stage.working()
    stage.working()
    for run_id in run_ids:
        stage.until_state(run_id, "completed")
    answers = {stage.told(run_id)[0][2] for run_id in run_ids}
    assert len(answers) == 1, "each was told the same result"
    done = [sent.text for sent in stage.outside.sent] or [note["text"] for run in run_ids for note in stage.notes(run)]
    assert done == ["August"]
    [action] = stage.rows("select action_id, run_id from surefoot.actions")
    assert action["action_id"] == f"default/{tool}:2013-08"
    for run_id in run_ids:
        shared = [row["data"]["run"] for row in events(stage, run_id, "action.shared")]
        assert shared == ([] if run_id == action["run_id"] else [action["run_id"]])
        [step] = [row for row in stage.timeline(run_id, "step") if row["name"].startswith("tool:")][-1:]
        assert step["name"] == f"tool:{tool}:{run_id}/1/0:{tool}"
        assert step["how"] == "reused" or run_id == action["run_id"]


def test_killed_between_its_commits_it_still_happens_once(stage: Stage) -> None:
    stage.announce()
    run_ids = [stage.script([SEND]), stage.script([SEND])]
    for point in ("tool.effect.after_commit", "effect.after_send"):
        assert stage.working(point).until_it_dies() == -9
    stage.working()
    for run_id in run_ids:
        stage.until_state(run_id, "completed")
        assert stage.told(run_id) == [["named_send", "success", "1"]]
    assert len(stage.outside.sent) == 1
    assert sum(len(events(stage, run_id, "action.shared")) for run_id in run_ids) == 1


def test_control_with_a_key_of_its_own_for_each_call_it_happens_twice(stage: Stage) -> None:
    stage.working(broken=every_call_has_a_key_of_its_own)
    for run_id in [stage.script([SEND]), stage.script([SEND])]:
        stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 2


def test_a_run_that_waits_for_the_action_of_another_is_woken_though_nobody_lives_to_do_it(stage: Stage) -> None:
    """The worker dies between the commit that settles and those that wake the others."""
    worker, first, second = both_wait(stage, "effect.answered.after_commit")
    assert worker.until_it_dies() == -9
    assert stage.state(second) == "waiting"
    stage.working()
    for run_id in (first, second):
        stage.until_state(run_id, "completed")
        assert stage.told(run_id) == [["named_send", "success", "1"]]
    assert len(stage.outside.sent) == 1


def test_control_without_the_watchdogs_round_it_would_go_on_waiting(stage: Stage) -> None:
    worker, first, second = both_wait(stage, "effect.answered.after_commit")
    assert worker.until_it_dies() == -9
    stage.working(broken=nobody_looks_for_sharers)
    stage.until_state(first, "completed")
    stage.until_state(stage.script([("note", {"text": "a later run"})]), "completed")
    assert stage.state(second) == "waiting"


def test_it_is_woken_right_after_the_settling_commit(stage: Stage) -> None:
    _, first, second = both_wait(stage, broken=no_watchdog_looks_for_sharers)
    for run_id in (first, second):
        stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 1


def test_another_request_under_the_same_key_is_refused_and_told(stage: Stage) -> None:
    stage.working()
    stage.until_state(stage.script([SEND]), "completed")
    other = stage.script([("named_send", {"text": "September", "name": "2013-08"})], [("note", {"text": "after"})])
    stage.until_state(other, "completed")
    [tool, outcome, words] = stage.told(other)[0]
    assert (tool, outcome) == ("named_send", "failed")
    hashes = stage.rows("select left(request_hash, 12) as hash from surefoot.actions where tool = 'named_send'")
    assert (
        f"Action {ACTION} is recorded with another request (named_send, {hashes[0]['hash']}; now named_send," in words
    )
    assert "Nothing was sent." in words
    assert [sent.text for sent in stage.outside.sent] == ["August"]


def test_a_key_that_cannot_be_one_is_told_to_the_model(stage: Stage) -> None:
    stage.working()
    names = ("", "k" * 201, "a\tb")
    run_id = stage.script(*([("named_send", {"text": "August", "name": name})] for name in names))
    stage.until_state(run_id, "completed")
    for (_, outcome, told), words in zip(stage.told(run_id), ("has 0", "has 201", "control"), strict=True):
        assert (outcome, words in told) == ("failed", True), told
    assert stage.outside.sent == []


def test_when_its_owner_is_cancelled_unsent_the_one_who_waits_does_it(stage: Stage) -> None:
    """And its approval is asked for anew: the first one was the owner's."""
    stage.working()
    gated = [("gated_named_send", {"text": "August", "name": "2013-08"})]
    first = stage.script(gated)
    stage.until_state(first, "waiting")
    second = stage.script(gated)
    stage.until_state(second, "waiting")
    assert len(stage.approvals(first)) == 1
    assert stage.approvals(second) == []
    assert stage.command("runs", "cancel", first).returncode == 0
    until("the second asks for its own approval", lambda: stage.approvals(second))
    stage.approve(second)
    stage.until_state(second, "completed")
    assert [sent.reference for sent in stage.outside.sent] == ["default/gated_named_send:2013-08~2"]
    assert [row["data"]["run"] for row in events(stage, second, "action.shared")] == [first]


def test_what_came_to_nothing_does_not_use_up_its_key(stage: Stage) -> None:
    stage.working()
    gated = [("gated_named_send", {"text": "August", "name": "2013-08"})]
    first = stage.script(gated)
    stage.until_state(first, "waiting")
    second = stage.script(gated)
    stage.until_state(second, "waiting")
    stage.approve(first, "reject")
    stage.until_state(first, "completed")
    until("the second asks for its own approval", lambda: stage.approvals(second))
    stage.approve(second)
    stage.until_state(second, "completed")
    third = stage.script(gated)
    stage.until_state(third, "completed")
    assert stage.told(third) == stage.told(second) == [["gated_named_send", "success", "1"]]


def test_twice_in_one_response_it_is_one_action(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("note", {"text": "a"}), SEND, SEND], agent="hasty")
    stage.until_state(run_id, "completed")
    assert stage.told(run_id)[1:] == [["named_send", "success", "1"]] * 2
    assert len(stage.outside.sent) == 1


@pytest.mark.parametrize(("decision", "answer"), [("approve", "success"), ("reject", "denied")])
def test_a_call_that_stands_behind_another_does_not_take_the_key(stage: Stage, decision: Any, answer: str) -> None:
    stage.working()
    behind = stage.script([("gated_send", {"text": "first"}), SEND])
    stage.until_state(behind, "waiting")
    stage.until_state(stage.script([SEND]), "completed")
    stage.approve(behind, decision)
    stage.until_state(behind, "completed")
    assert stage.told(behind)[1][:2] == ["named_send", answer]
    assert len(stage.outside.of("August")) == 1
    assert len(events(stage, behind, "action.shared")) == (decision == "approve")


def test_a_person_settles_a_keyed_action_by_its_id(stage: Stage) -> None:
    """Over HTTP and on the command line, with all that an id may have in it; both runs go on."""
    worker = stage.working("effect.after_send")
    name = "a/b: c~2#d?100%!"
    blind = [("named_send_blindly", {"text": "August", "name": name})]
    first = stage.script(blind, agent="hasty")
    assert worker.until_it_dies() == -9
    _, api = stage.serve()
    stage.until_state(first, "waiting")
    second = stage.script(blind, agent="hasty")
    stage.until_state(second, "waiting")
    assert stage.rows("select kind from surefoot.waits where run_id = %s", second) == [{"kind": "verification"}]
    desk = until("it is on the desk", lambda: [row for row in api.get("/actions").json()["unknown"] if row["can"]])
    action_id = desk[0]["action_id"]
    assert action_id == "default/named_send_blindly:a/b: c%7E2%23d?100%25%21"
    assert action_id in stage.command("actions", "show", action_id).stdout
    path = f"/actions/{quote(action_id, safe='/:')}"
    assert api.get(path).json()["action_id"] == action_id
    said = api.post(f"{path}/decision", json={"outcome": "succeeded", "result": 7})
    assert said.status_code == 200, said.text
    for run_id in (first, second):
        stage.until_state(run_id, "completed")
        assert stage.told(run_id)[0][2] == "7"


def events(stage: Stage, run_id: str, kind: str) -> list[dict[str, Any]]:
    return stage.rows("select data from surefoot.events where run_id = %s and kind = %s order by seq", run_id, kind)


def both_wait(stage: Stage, point: str | None = None, **broken: Any) -> tuple[Any, str, str]:
    """A worker, and two runs that wait as rows for one effect, which is answered when this returns."""
    worker = stage.working(point, **broken)
    with stage.outside.held():
        first = stage.script([SEND], agent="hasty")
        stage.outside.until_sent(1)
        second = stage.script([SEND], agent="hasty")
        for run_id in (first, second):
            stage.until_state(run_id, "waiting")
    return worker, first, second


def every_call_has_a_key_of_its_own() -> None:
    Spec.key_of = lambda self, arguments: uuid.uuid4().hex


def no_watchdog_looks_for_sharers() -> None:
    async def nobody(*_: Any) -> None:
        pass

    watchdog.Watchdog._wake_sharers = nobody


def nobody_looks_for_sharers() -> None:
    async def nobody(*_: Any) -> None:
        pass

    no_watchdog_looks_for_sharers()
    effects.wake_sharers = nobody
