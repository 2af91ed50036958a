"""What nobody can tell is asked on a schedule, then left to a person, and never called a failure or cancelled."""

import time
from typing import Any

import pytest

from steps import (
    Absent,
    Found,
    KeyConflict,
    NotSent,
    Unsure,
    gate,
    sending,
    verifying,
)
from steps.drive import Claimed, Drive
from tests.races.driven import Other, status
from tests.races.scenes import AGENT, BOB, LEASE_S
from transactions import (
    DEFAULT_TENANT,
    Conflict,
    InvalidInput,
    actions,
    attempts,
    desk,
    outbox,
    runs,
)
from transactions.actions import Ticket


async def test_a_key_that_came_with_another_request_is_never_sent_again(effects: Any) -> None:
    for error in (status(422, '{"type": "idempotency_error"}'), KeyConflict("other body")):
        other = Other([error, 7])
        driven = await effects(other, safety="idempotent")
        await driven.drive()
        assert other.sent == [1]
        on_desk = await driven.look()
        assert (on_desk["state"], on_desk["failure"], on_desk["waits_for"]) == ("UNKNOWN", "conflict", "person")
        assert on_desk["why"].endswith(str(error)) or "422" in on_desk["why"]
        await driven.scene.rows("truncate surefoot.runs cascade")


async def test_without_the_class_of_conflicts_such_a_key_is_sent_again(
    effects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "_nobody_to_ask", lambda row: None)
    other = Other([KeyConflict("other body"), 7])
    driven = await effects(other, safety="idempotent")
    await driven.drive()
    assert other.sent == [1, 2]


async def test_no_answer_to_any_attempt_is_never_called_a_failure(effects: Any) -> None:
    """Where a key is honoured it may have happened at the first attempt: the last one says nothing of that."""
    for answers in ([status(500)], [status(500), ConnectionRefusedError("no")]):
        other = Other(answers)
        driven = await effects(other, safety="idempotent", attempts_max=2)
        await driven.drive()
        assert other.sent == [1, 2]
        assert (await driven.state())[:1] + (await driven.state())[2:] == ("UNKNOWN", "parked", "waiting")
        on_desk = await driven.look()
        assert (on_desk["waits_for"], on_desk["can"]) == ("person", ["succeeded", "failed"])
        await driven.scene.rows("truncate surefoot.runs cascade")


async def test_what_was_looked_for_and_is_absent_each_time_has_failed(effects: Any) -> None:
    other = Other([status(500)], [Absent()])
    driven = await effects(other, safety="verify", attempts_max=2)
    await driven.drive()
    assert other.sent == [1, 2]
    assert (await driven.state())[0] == "FAILED"


async def test_when_its_schedule_ends_a_verifier_is_not_asked_any_more_until_a_person_wants_it(effects: Any) -> None:
    other = Other([status(500)], [Unsure(["a", "b"])] * 3 + [Found(7)])
    driven = await effects(other, safety="verify", verifications_max=3)
    for _ in range(3):
        await driven.due()
        if (await driven.state())[2] == "pending":
            await driven.drive()
    assert other.asked == 3
    assert await driven.state() == ("UNKNOWN", "unknown", "parked", "waiting")
    on_desk = await driven.look()
    assert (on_desk["waits_for"], on_desk["last_evidence"]) == ("person", ["a", "b"])
    assert "asked 3 times" in on_desk["why"]
    async with driven.scene.database.transaction("action.ask_again", DEFAULT_TENANT) as session:
        await desk.ask_again(session, driven.action_id, by="eve")
    await driven.drive()
    assert other.asked == 4
    assert await driven.state() == ("SUCCEEDED", None, "delivered", "queued")
    assert other.sent == [1]


async def test_what_was_done_and_answered_what_cannot_be_kept_is_not_done_again(effects: Any) -> None:
    for answer, words in (("no number", "does not declare"), ([10**17] * 3_700_000, "over 67108864")):
        other = Other([answer])
        driven = await effects(other, safety="idempotent")
        await driven.drive()
        assert other.sent == [1]
        on_desk = await driven.look()
        assert (on_desk["state"], on_desk["waits_for"]) == ("UNKNOWN", "person")
        assert words in on_desk["why"]
        await driven.says("succeeded", result=7)
        assert (await driven.state())[0] == "SUCCEEDED"
        await driven.scene.rows("truncate surefoot.runs cascade")


async def test_a_verifier_that_hangs_raises_or_answers_what_cannot_be_kept_is_unsure(effects: Any) -> None:
    for verdict in (ValueError("no"), "found", Found("no number")):
        other = Other([status(500)], [verdict])
        driven = await effects(other, safety="verify", verifications_max=1)
        await driven.drive()
        assert await driven.state() == ("UNKNOWN", "unknown", "parked", "waiting")
        assert (await driven.look())["last_verdict"] == "unsure"
        await driven.scene.rows("truncate surefoot.runs cascade")


async def test_what_cannot_be_asked_is_refused(effects: Any) -> None:
    driven = await effects(Other([status(500)]), safety="at_most_once")
    await driven.drive()
    assert await driven.state() == ("UNKNOWN", "unknown", "parked", "waiting")
    async with driven.scene.database.transaction("action.ask_again", DEFAULT_TENANT) as session:
        with pytest.raises(
            Conflict, match="only an UNKNOWN one that has a verifier and no conflict can be asked about"
        ):
            await desk.ask_again(session, driven.action_id, by="eve")
        with pytest.raises(InvalidInput, match="Say who"):
            await desk.ask_again(session, driven.action_id, by=" ")
    await driven.says("succeeded", result=7)
    assert await driven.state() == ("SUCCEEDED", None, "delivered", "queued")


async def test_a_receipt_that_comes_after_absent_and_a_second_send_is_shown_as_a_contradiction(effects: Any) -> None:
    other = Other([status(500), 7], [Absent()])
    driven = await effects(other, safety="verify")
    await driven.drive()
    assert other.sent == [1, 2]
    await driven.scene.receive(driven.action_id, attempt=1, result=3)
    async with driven.scene.database.transaction("read", DEFAULT_TENANT) as session:
        (shown,) = (await desk.look(session, DEFAULT_TENANT, limit=10)).contradictions
    assert (shown["attempt"], shown["result"], shown["counts"]) == (1, 3, 7)
    assert shown["why"] == "attempt 1 was answered too: it may have happened twice"
    assert (await driven.state())[0] == "SUCCEEDED"


async def test_what_may_have_been_taken_is_not_called_cancelled(effects: Any) -> None:
    """Its key was to be sent again after an attempt without an answer, and then its run was cancelled."""
    other = Other([status(500), NotSent("busy", retry_after_s=60)])
    driven = await effects(other, safety="idempotent")
    await driven.drive()
    assert await driven.state() == ("PREPARED", "rate_limited", "pending", "waiting")
    async with driven.scene.database.transaction("run.cancel", DEFAULT_TENANT) as session:
        await runs.cancel(session, driven.run_id, by="eve", reason="no more")
    assert (await driven.state())[0] == "UNKNOWN"
    assert (await driven.state())[2:] == ("parked", "cancelled")
    on_desk = await driven.look()
    assert on_desk["why"].endswith("an attempt of it may count: a person has to say what happened")
    await driven.says("failed", reason="it is not there")
    assert (await driven.state())[0] == "FAILED"


async def test_a_driver_that_comes_late_does_not_take_a_decision_back(effects: Any) -> None:
    driven = await effects(Other([status(500), NotSent("busy", retry_after_s=60)]), safety="at_most_once")
    await driven.drive()
    await driven.until_it_can_be_said("absent")
    await driven.says("absent")
    async with driven.scene.database.transaction("effect.park", DEFAULT_TENANT) as session:
        assert not await attempts.leave_to_a_person(session, driven.action_id, attempt=1, reason="late", worker_id=BOB)
    assert (await driven.state())[:3] == ("PREPARED", None, "pending")


async def test_an_attempt_that_is_over_before_it_was_sent_is_not_sent(effects: Any) -> None:
    """Its worker stood still in between, and others may have found that nothing had come of it."""
    other = Other([7])
    driven = await effects(other, safety="verify", attempt_s=5.0)
    async with driven.scene.database.all_tenants("relay.claim") as session:
        (delivery,) = await outbox.claim_due(
            session, consumers=["effect"], agents=[AGENT], worker_id=BOB, lease_s=LEASE_S, limit=1
        )
    ticket = Ticket(driven.action_id, delivery.attempt, BOB)
    async with driven.scene.database.transaction("effect.claim", DEFAULT_TENANT) as session:
        claimed = await actions.claim(session, ticket, attempt=0)
    assert claimed is not None
    drive = await Drive.load(driven.effects._bench, ticket, DEFAULT_TENANT)
    await sending.send(drive, Claimed(claimed, time.monotonic() - 5.1))
    assert other.sent == []
    assert (await driven.state())[:2] == ("PREPARED", "transient")
    await driven.effects.drive(ticket, DEFAULT_TENANT)
    assert other.sent == [2]


@pytest.mark.parametrize("again_s", [float("inf"), 1e12, -5.0])
async def test_nobody_is_told_to_wait_for_ever(effects: Any, again_s: float) -> None:
    driven = await effects(Other([NotSent("busy", retry_after_s=again_s), 7]), safety="at_most_once")
    await driven.drive()
    left = "select extract(epoch from due_at - clock_timestamp())::int from surefoot.outbox_deliveries"
    ((seconds,),) = await driven.scene.rows(left)
    assert seconds <= 24 * 3600


async def test_an_effect_that_cannot_be_driven_says_why(effects: Any) -> None:
    driven = await effects(Other([7]), safety="verify")
    await driven.scene.rows("update surefoot.actions set tool = 'renamed'")
    await driven.scene.rows("update surefoot.version_agents set tools = '{renamed}'")  # not by what it says, at least
    await driven.drive()
    shown = await driven.scene.rows("select state, detail, due_at > clock_timestamp() from surefoot.outbox_deliveries")
    assert shown == [("pending", "version 1 of report has no tool renamed: start one that has", True)]


async def test_so_does_one_whose_claim_raises(effects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def claim(*_: Any) -> Any:
        raise ValueError("no such draft")

    monkeypatch.setattr(gate.Gate, "claim", claim)
    other = Other([7])
    driven = await effects(other, safety="verify")
    with pytest.raises(ValueError, match="no such draft"):
        await driven.drive()
    shown = await driven.scene.rows("select state, detail from surefoot.outbox_deliveries")
    assert shown == [("pending", "it cannot be driven: ValueError: no such draft")]
    assert other.sent == []


async def test_a_reason_that_cannot_be_stored_does_not_lose_the_outcome(effects: Any) -> None:
    other = Other([KeyConflict("a\x00b\ud800")])
    driven = await effects(other, safety="idempotent")
    await driven.drive()
    assert other.sent == [1]
    assert (await driven.look())["failure"] == "conflict"
