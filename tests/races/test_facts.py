"""A fact is kept whatever its words are: what Postgres cannot store in them is replaced."""

import pytest

from tests.races.scenes import ADA, LEASE_S, Scene
from transactions import DEFAULT_TENANT, EntryId, attempts, outbox, receipts
from transactions.outbox import Delivery, End

NASTY = "a\x00b\ud800c\\u0000"
KEPT = "a\ufffdb\ufffdc\\u0000"


async def claimed(scene: Scene) -> Delivery:
    async with scene.database.all_tenants("relay.claim") as session:
        found = await outbox.claim_due(session, consumers=("mail",), agents=(), worker_id=ADA, lease_s=LEASE_S, limit=1)
    return found[0]


async def test_a_delivery_is_settled_whatever_the_other_side_says(scene: Scene) -> None:
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        await outbox.put(
            session,
            entry_id=EntryId("letter"),
            tenant=DEFAULT_TENANT,
            run_id=None,
            action_id=None,
            topic="mail",
            payload={},
            consumers=("mail",),
        )
    delivery = await claimed(scene)
    async with scene.database.transaction("relay.settle", delivery.tenant) as session:
        assert await outbox.settle(session, [End(delivery, "pending", NASTY, pause_s=0)])
    again = await claimed(scene)
    async with scene.database.transaction("relay.settle", again.tenant) as session:
        assert await outbox.acknowledge(session, again, receipt={"said": NASTY, NASTY: 1}, detail=NASTY)
    rows = await scene.rows("select state, detail, receipt from surefoot.outbox_deliveries")
    assert rows == [("delivered", KEPT, {"said": KEPT, KEPT: 1})]
    assert await scene.rows("select result from surefoot.inbox") == [({"said": KEPT, KEPT: 1},)]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_receipt_settles_its_action_whatever_it_says(scene: Scene, times: int) -> None:
    """Told twice by the same, because the answer to the first commit was lost, it is the same receipt."""
    execution = await scene.running()
    request = scene.request(execution, 0, gated=False)
    async with scene.database.transaction("calls", execution.tenant) as session:
        await scene.prepare(session, execution, request)
    for _ in range(times):
        async with scene.database.transaction("effect.answered", execution.tenant) as session:
            await receipts.receive(
                session, request.action_id, attempt=1, source="answer", result={"said": NASTY}, worker_id=ADA
            )
    state = "select state, result from surefoot.actions"
    assert await scene.rows(state) == [("SUCCEEDED", {"said": KEPT})]
    assert await scene.rows("select result, contradiction from surefoot.receipts") == [({"said": KEPT}, None)]


async def test_evidence_is_kept_whatever_it_says(scene: Scene) -> None:
    execution = await scene.running()
    request = scene.request(execution, 0, gated=False)
    async with scene.database.transaction("calls", execution.tenant) as session:
        await scene.prepare(session, execution, request)
        await attempts.judge(session, request.action_id, attempt=0, verdict="unsure", evidence=[NASTY], worker_id=ADA)
    assert await scene.rows("select evidence from surefoot.verifications") == [([KEPT],)]


async def test_a_number_that_json_does_not_have_is_null(scene: Scene) -> None:
    execution = await scene.running()
    request = scene.request(execution, 0, gated=False)
    async with scene.database.transaction("calls", execution.tenant) as session:
        await scene.prepare(session, execution, request)
    answer = {"rates": [float("nan"), float("inf"), 1.5]}
    async with scene.database.transaction("effect.answered", execution.tenant) as session:
        await receipts.receive(session, request.action_id, attempt=1, source="answer", result=answer, worker_id=ADA)
    kept = {"rates": [None, None, 1.5]}
    assert await scene.rows("select state, result from surefoot.actions") == [("SUCCEEDED", kept)]
