"""Crashes, resumes, approvals and time, in the test's own process."""

import subprocess
import sys
from datetime import timedelta

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.function import FunctionModel

from app.crashtest.plugin import Rehearsal
from app.crashtest.rehearsal import RehearsalFailed
from steps import durable
from tests.crash.shop import World, shop
from tests.static.sources import ROOT
from transactions import Conflict

ORDERS = "select count(*) as n from shop.orders"


def test_undisturbed_it_ends(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["order"], ["ship"]]))
    stage.start("one")
    finished = stage.finish()
    assert (finished.state, finished.output, len(world.shipped)) == ("completed", "done", 1)
    assert stage.rows(ORDERS) == [{"n": 1}]


def test_after_a_crash_between_send_and_receipt_it_is_found_and_not_sent_again(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["ship"]]))
    run = stage.start("one")
    stage.crash_at("effect.after_send")
    assert (len(world.shipped), world.searched) == (1, [])
    assert stage.finish(run).state == "completed"
    assert (len(world.shipped), len(world.searched)) == (1, 1)
    workers = stage.rows("select state, reason from surefoot.workers where version <> 'none' order by started_at")
    assert [row["state"] for row in workers] == ["dead", "live"]
    assert "is gone" in workers[0]["reason"]


def test_after_a_crash_between_commit_and_record_it_has_written_once(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["order"]]))
    stage.start("one")
    stage.crash_at("tool.transaction.after_commit")
    assert stage.rows(ORDERS) == [{"n": 1}]
    assert stage.finish().state == "completed"
    assert stage.rows(ORDERS) == [{"n": 1}]
    assert "reused" in [row["how"] for row in stage.timeline() if row["what"] == "step"]


def test_what_was_not_committed_at_the_crash_is_rolled_back(rehearsal: Rehearsal) -> None:
    stage = rehearsal(shop(World(), [["order"]]))
    stage.start("one")
    stage.crash_at("tool.transaction.before_commit")
    assert stage.rows(ORDERS) == [{"n": 0}]
    stage.finish()
    assert stage.rows("select number, text from shop.orders") == [{"number": 2, "text": "order"}]


def test_crash_after_crash_at_every_commit_of_an_effect(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["order"], ["ship"]]))
    stage.start("one")
    for point in ("segment.begin.after_commit", "step.before_record", "tool.effect.after_commit"):
        stage.crash_at(point)
    stage.later(timedelta(minutes=11))  # what nobody finds is believed to be absent once its attempt is over
    stage.crash_at("effect.absent.before_commit")
    stage.crash_at("effect.answered.before_commit")
    assert stage.finish().state == "completed"
    assert len(world.shipped) == 1
    assert stage.rows(ORDERS) == [{"n": 1}]


def test_it_waits_for_an_approval_and_goes_on_with_it(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["ship_if_agreed", "order"]]))
    stage.start("one")
    stage.until("waiting")
    with pytest.raises(RehearsalFailed, match="asks for the approval of ship_if_agreed by role:manager"):
        stage.finish()
    stage.crash()
    assert world.shipped == []
    stage.approve(by="ada", role="manager")
    stage.crash_at("effect.after_send")
    assert stage.finish().state == "completed"
    assert len(world.shipped) == 1


def test_an_approval_expires_and_nothing_is_sent(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["ship_if_agreed", "order"]]))
    stage.start("one")
    stage.until("waiting")
    stage.later(timedelta(days=2))
    with pytest.raises(RehearsalFailed):
        stage.finish()
    stage.later(timedelta(days=2))
    assert stage.finish().state == "completed"
    assert world.shipped == []
    assert stage.rows(ORDERS) == [{"n": 0}]
    assert stage.rows("select state from surefoot.approvals") == [{"state": "expired"}]


def test_what_nobody_can_be_asked_waits_until_a_person_says_that_it_happened(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["ship_blindly", "order"]]))
    stage.start("one")
    stage.crash_at("effect.after_send")
    with pytest.raises(RehearsalFailed, match="waits for a person to say what became of ship_blindly"):
        stage.finish()
    stage.settle("succeeded", by="eve", result="shipped")
    assert stage.finish().state == "completed"
    assert (len(world.shipped), world.searched) == (1, [])
    assert stage.rows(ORDERS) == [{"n": 1}]


def test_what_a_person_says_did_not_happen_is_sent_once_its_attempt_is_over(rehearsal: Rehearsal) -> None:
    world = World()
    stage = rehearsal(shop(world, [["ship_blindly"]]))
    stage.start("one")
    stage.crash_at("effect.before_send")
    with pytest.raises(Conflict, match="may still arrive there until"):
        stage.settle("absent", by="eve")
    assert world.shipped == []
    stage.later(timedelta(minutes=11))
    stage.settle("absent", by="eve", tool="ship_blindly")
    assert stage.finish().state == "completed"
    assert len(world.shipped) == 1


def test_what_a_lying_verifier_doubles_is_seen_to_be_doubled(rehearsal: Rehearsal) -> None:
    """The negative control: the crash is one, and the send was made before it."""
    world = World()
    stage = rehearsal(shop(world, [["ship_and_forget"]]))
    stage.start("one")
    stage.crash_at("effect.after_send")
    stage.later(timedelta(minutes=11))
    stage.finish()
    assert len(world.shipped) == 2


def test_a_point_that_is_never_passed_says_where_the_run_is(rehearsal: Rehearsal) -> None:
    stage = rehearsal(shop(World(), []))
    stage.start("one")
    with pytest.raises(RehearsalFailed, match=r"never came to passage 1 of effect.after_send .* is completed"):
        stage.crash_at("effect.after_send")


def test_two_stages_take_turns(rehearsal: Rehearsal) -> None:
    worlds = World(), World()
    stages = [rehearsal(shop(world, [["ship"]])) for world in worlds]
    for stage in stages:
        stage.start("one")
        stage.crash_at("step.before_record")
    assert [stage.finish().state for stage in stages] == ["completed", "completed"]
    assert [len(world.shipped) for world in worlds] == [1, 1]


def test_an_agent_that_ends_with_nothing_completes(rehearsal: Rehearsal) -> None:
    """`None` is an output; it was once taken for none, and the run was held after five segments."""
    silent = FunctionModel(lambda messages, info: ModelResponse(parts=[]), model_name="silent")
    agent = Agent(silent, name="silent", output_type=[str, type(None)])
    stage = rehearsal(durable(agent, version="1", deps=lambda run: None))
    stage.start("one")
    finished = stage.finish()
    assert (finished.state, finished.output) == ("completed", None)


def test_a_session_that_uses_nothing_of_the_plugin_imports_nothing_of_the_product() -> None:
    seen = "import sys, app.crashtest.plugin; print([n for n in ('dbos', 'sqlalchemy', 'steps') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", seen], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
