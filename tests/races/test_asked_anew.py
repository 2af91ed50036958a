"""What was asked about anew when the world, or the policy, moves on meanwhile: each found by reading, and kept."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.races import invariants
from tests.races.scenes import ADA, LEASE_S, Scene, person, question
from tests.races.test_subscriptions import announce
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ApprovalId,
    Forbidden,
    RunId,
    Session,
    actions,
    approvals,
    attempts,
    deciding,
    outbox,
    principals,
    waits,
)
from transactions.actions import Request, Ticket
from transactions.approvals import Objection
from transactions.deciding import Said
from transactions.segments import Begun


async def test_a_late_answer_leaves_nothing_to_decide_and_nobody_waiting(scene: Scene) -> None:
    seen = await _answered_late(scene)
    invariants.consistent(seen)
    assert [row["state"] for row in seen["actions"]] == ["SUCCEEDED"]
    assert [row["state"] for row in seen["approvals"]] == ["superseded", "void"]
    assert (seen["state"], seen["segment"]) == ("queued", 2)


async def test_control_where_it_settles_the_action_alone_the_run_waits_for_a_decision(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wake(session: Session, run_id: RunId, action_id: ActionId) -> None:
        await waits.settle(session, run_id, action_id, kinds=("delivery", "verification"), outcome="go", reason=None)
        await waits.wake(session, run_id)

    monkeypatch.setattr(actions, "wake", wake)
    seen = await _answered_late(scene)
    assert (seen["state"], seen["approvals"][-1]["state"]) == ("waiting", "pending")


async def test_whoever_agreed_is_counted_again_when_it_is_done(scene: Scene) -> None:
    """An older version was content with one manager, or with the one who has started the run."""
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    await scene.decide(waiting.action(0), "approve")
    request = scene.request(waiting.execution, 0, gated=True)
    rows = "update surefoot.approvals set terms = null, requester = %s where run_id = %s"  # asked by one without terms
    for requester, terms, needed in (
        ("bob", {}, None),
        ("bob", {"people_min": 2}, "2 people have to agree"),
        ("ada", {"not_requester": True}, "1 people have to agree"),
    ):
        await scene.rows(rows, requester, waiting.run_id)
        async with scene.database.transaction("look", DEFAULT_TENANT) as session:
            found = await approvals.objection(session, question(waiting.execution, request, **terms))
        assert (None if found is None else found.why) == needed


async def test_whoever_may_decide_by_escalation_may_change_it_too(scene: Scene) -> None:
    """The new question would be escalated only later."""
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    dora = person("dora", "approver", "director")
    await scene.administrate(
        lambda session: principals.put(session, DEFAULT_TENANT, dora.name, roles=sorted(dora.roles), by="test")
    )
    asked = question(waiting.execution, scene.request(waiting.execution, 0, gated=True))
    escalated = replace(asked, escalates=timedelta(minutes=1), escalates_to=("role:director",))
    changed = Said(dora, "approve", changed=replace(escalated, arguments={"edited": 1}, binding={"edited": 1}))
    rows = (
        "update surefoot.approvals set escalates_to = '{role:director}', "
        "escalates_at = clock_timestamp() + %s * interval '1 minute'"
    )

    async def decide() -> None:
        async with scene.database.transaction("approval.decide", DEFAULT_TENANT) as session:
            await deciding.decide(session, ApprovalId(waiting.action(0)), changed)

    await scene.rows(rows, 1)
    with pytest.raises(Forbidden):
        await decide()
    await scene.rows(rows, -1)
    await decide()
    seen = await scene.seen(waiting.run_id)
    assert [row["state"] for row in seen["approvals"]] == ["superseded", "approved"]
    async with scene.database.transaction("look", DEFAULT_TENANT) as session:
        meant = replace(changed.changed or escalated, action_id=ActionId(f"{waiting.action(0)}~2"))
        assert await approvals.objection(session, meant) is None


async def test_whom_the_policy_asks_no_more_when_it_escalates_does_not_count(scene: Scene) -> None:
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    dora = person("dora", "approver", "director")
    await scene.administrate(
        lambda session: principals.put(session, DEFAULT_TENANT, dora.name, roles=sorted(dora.roles), by="test")
    )
    await scene.rows("update surefoot.approvals set escalates_to = '{role:director}', escalates_at = clock_timestamp()")
    async with scene.database.transaction("approval.decide", DEFAULT_TENANT) as session:
        await deciding.decide(session, ApprovalId(waiting.action(0)), Said(dora, "approve"))
    asked = question(waiting.execution, scene.request(waiting.execution, 0, gated=True))
    for escalates_to, needed in ((("role:director",), None), ((), "dora may not approve it any more")):
        async with scene.database.transaction("look", DEFAULT_TENANT) as session:
            found = await approvals.objection(session, replace(asked, escalates_to=escalates_to))
        assert (None if found is None else found.why) == needed


async def test_nobody_is_reminded_of_what_a_late_answer_has_settled(scene: Scene) -> None:
    await announce(scene, "chat", "approval.reminder")
    execution = await scene.running()
    request = scene.request(execution, 0, gated=False)
    async with scene.database.transaction("calls", DEFAULT_TENANT) as session:
        await scene.prepare(session, execution, request)
        await approvals.ask(session, replace(question(execution, request), remind=timedelta(minutes=10)))
    states = "select distinct state from surefoot.outbox_deliveries where consumer = 'chat'"
    assert await scene.rows(states) == [("pending",)]
    await scene.receive(request.action_id)
    assert await scene.rows(states) == [("discarded",)]


async def _answered_late(scene: Scene) -> dict[str, Any]:
    """Approved, sent, not answered, proved absent; what it would do has changed, so it is asked about anew; and then
    the first attempt is answered after all."""
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    await scene.decide(waiting.action(0), "approve")
    await scene.dequeue(waiting.run_id, 1, ADA)
    begun = await scene.begin(waiting.run_id, 1, ADA)
    assert begun is not None
    request = scene.request(begun.execution, 0, gated=True)
    await _sent_and_absent(scene, begun, request)
    async with scene.database.transaction("ask anew", DEFAULT_TENANT) as session:
        assert await actions.still(session, request.action_id, "PREPARED")
        asked = replace(question(begun.execution, request), binding={"version": 2})
        await approvals.ask(session, asked, Objection("the report has changed"))
    await scene.end(begun.execution, replace(waiting.ending(), first_seq=0))
    assert (await scene.seen(waiting.run_id))["state"] == "waiting"
    await scene.receive(request.action_id)
    return await scene.seen(waiting.run_id)


async def _sent_and_absent(scene: Scene, begun: Begun, request: Request) -> None:
    async with scene.database.transaction("send", DEFAULT_TENANT) as session:
        taken = await outbox.take_effect(session, request.action_id, worker_id=ADA, lease_s=LEASE_S)
        assert taken is not None
        assert await actions.claim(session, Ticket(request.action_id, taken, ADA, begun.execution), attempt=0)
    await scene.rows(
        "update surefoot.attempts set deadline_at = clock_timestamp() where action_id = %s", request.action_id
    )
    await scene.rows(
        "update surefoot.actions set attempt_deadline_at = clock_timestamp() where action_id = %s", request.action_id
    )
    async with scene.database.transaction("absent", DEFAULT_TENANT) as session:
        assert await attempts.doubt(session, request.action_id, attempt=1, reason="no answer", worker_id=ADA)
        assert await attempts.absent(session, request.action_id, attempt=1, worker_id=ADA)
