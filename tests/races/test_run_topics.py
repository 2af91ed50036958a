"""A run tells its state to who is subscribed, in the commit of the change, whatever makes it."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tests.races.scenes import ADA, BOB, VERSION, Scene
from tests.races.test_relay import Takes, relay_of
from tests.races.test_subscriptions import announce, put
from transactions import RunId, RunState, Tenant, outbox, segments
from transactions.readers import Serving
from transactions.segments import Ending

TOLD = (
    "select topic, payload ->> 'state', consumer"
    " from surefoot.outbox_entries e join surefoot.outbox_deliveries d using (entry_id)"
)


async def told(scene: Scene) -> Sequence[tuple[str, str, str]]:
    return await scene.rows(f"{TOLD} order by e.key_seq, consumer")


async def finish(scene: Scene, state: RunState, output: Any = None, reason: str | None = None) -> str:
    execution = await scene.running()
    await scene.end(execution, Ending(state=state, turns=1, usage={}, output=output, reason=reason))
    return execution.run_id


async def hold(scene: Scene, run_id: RunId, n: int) -> None:
    """No worker has its agent when its segment begins."""
    await scene.dequeue(run_id, n, ADA)
    async with scene.database.all_tenants("segment.begin") as session:
        refused = await segments.begin(
            session, run_id=run_id, n=n, worker_id=ADA, serving=Serving(VERSION, {}), stalls_max=5
        )
        assert refused is None


@pytest.fixture(autouse=True)
async def subscribed(scene: Scene) -> None:
    await announce(scene, "app", *outbox.RUN_TOPICS)


async def test_a_finished_run_is_told_with_its_output_to_each_who_is_subscribed(scene: Scene) -> None:
    await announce(scene, "archive", "run.finished", passes_dead=True)
    run_id = await finish(scene, RunState.COMPLETED, output={"text": "done"})
    [[seq]] = await scene.rows("select event_seq from surefoot.runs")
    found = await scene.rows("select entry_id, tenant, run_id, key, key_seq, payload from surefoot.outbox_entries")
    assert found == [
        (
            f"{run_id}#run.finished:{seq}",
            "default",
            run_id,
            run_id,
            seq,
            {
                "run_id": run_id,
                "agent": "report",
                "state": "completed",
                "reason": None,
                "output": {"text": "done"},
                "output_too_large": False,
                "idempotency_key": None,
                "event": seq,
            },
        )
    ]
    assert await told(scene) == [("run.finished", "completed", "app"), ("run.finished", "completed", "archive")]
    assert await scene.rows(
        "select consumer, passes_dead, attempts_max from surefoot.outbox_deliveries order by 1"
    ) == [
        ("app", False, outbox.DELIVERY_ATTEMPTS_MAX),
        ("archive", True, outbox.DELIVERY_ATTEMPTS_MAX),
    ]


async def test_a_consumer_that_is_subscribed_once_gets_the_entries_of_every_tenant(scene: Scene) -> None:
    """Subscriptions are the deployment's: what a tenant's tool puts, and what its runs come to."""
    acme = Tenant("acme")
    await announce(scene, "app", "news")
    execution = await scene.running(acme)
    await put(scene, "put by a tool", tenant=acme)
    await scene.end(execution, Ending(state=RunState.COMPLETED, turns=1, usage={}, output=1, reason=None))
    assert await told(scene) == [("run.finished", "completed", "app"), ("news", None, "app")]
    app = Takes()
    while await relay_of(scene, {"app": app}).run_once():
        pass
    entries = await scene.rows("select entry_id from surefoot.outbox_entries")
    assert sorted(app.order) == sorted(entry_id for (entry_id,) in entries)
    deliveries = "select distinct e.tenant, d.tenant, d.state from surefoot.outbox_entries e"
    assert await scene.rows(f"{deliveries} join surefoot.outbox_deliveries d using (entry_id)") == [
        ("acme", "acme", "delivered")
    ]


async def test_control_a_subscription_of_a_tenant_gets_nothing(scene: Scene) -> None:
    """A row that only one tenant has is nobody's: the lookups go to the deployment's."""
    await scene.rows("update surefoot.subscriptions set tenant = 'acme'")
    execution = await scene.running(Tenant("acme"))
    await put(scene, "put by a tool", tenant=Tenant("acme"))
    await scene.end(execution, Ending(state=RunState.COMPLETED, turns=1, usage={}, output=1, reason=None))
    assert await told(scene) == [("news", None, "news")]


async def test_every_path_into_a_state_is_told(scene: Scene) -> None:
    """The end of a segment, a person's cancelling, a refusal at the beginning, the watchdog, a program by SQL."""
    await finish(scene, RunState.FAILED, reason="no model")
    waiting = await scene.about_to_wait(("approval",))
    await scene.end(waiting.execution, waiting.ending())
    await scene.cancel(waiting.run_id)
    held = await scene.start()
    await hold(scene, held, 0)
    found = [
        (topic, state)
        for topic, state, _ in await scene.rows(f"{TOLD} where topic like 'run.%%' order by e.created_at")
    ]
    assert found == [
        ("run.failed", "failed"),
        ("run.waiting", "waiting"),
        ("run.cancelled", "cancelled"),
        ("run.held", "held"),
    ]
    await scene.release(held)
    assert len(await scene.rows(TOLD + " where topic like 'run.%%'")) == 4
    await scene.rows(
        "update surefoot.runs set state = 'held', reason = 'by hand', event_seq = event_seq + 1 where run_id = %s", held
    )
    [[reason]] = await scene.rows(
        "select payload ->> 'reason' from surefoot.outbox_entries where topic = 'run.held' order by key_seq desc"
        " limit 1"
    )
    assert reason == "by hand"


async def test_what_rolls_back_tells_nothing(scene: Scene) -> None:
    run_id = await scene.start()
    async with await psycopg.AsyncConnection.connect(scene.database.url) as anyone:
        await anyone.execute("update surefoot.runs set state = 'held', reason = 'r' where run_id = %s", (run_id,))
        await anyone.rollback()
    assert await told(scene) == []


async def test_a_run_that_goes_on_in_the_same_commit_did_not_wait(scene: Scene) -> None:
    """At the end of every segment whose turns are used up, and when the last wait was settled before it ended."""
    execution = await scene.running()
    assert await scene.end(execution, Ending(state=RunState.QUEUED, turns=1, usage={}))
    assert await scene.rows("select state from surefoot.runs") == [("queued",)]
    assert await told(scene) == []


async def test_nobody_subscribed_is_nothing_written(scene: Scene) -> None:
    await scene.rows("update surefoot.subscriptions set ended_at = now(), ended_by = 'ada'")
    await finish(scene, RunState.COMPLETED, output="done")
    assert await scene.rows("select count(*) from surefoot.outbox_entries") == [(0,)]


async def test_an_output_that_is_too_large_is_left_out_and_that_is_said(scene: Scene) -> None:
    await finish(scene, RunState.COMPLETED, output="x" * (outbox.PAYLOAD_BYTES_MAX + 1))
    [[payload]] = await scene.rows("select payload from surefoot.outbox_entries")
    assert (payload["output"], payload["output_too_large"]) == (None, True)


async def test_another_tenant_s_subscribers_hear_nothing(scene: Scene) -> None:
    await scene.rows("update surefoot.subscriptions set tenant = 'b'")
    await finish(scene, RunState.COMPLETED, output="done")
    assert await scene.rows("select count(*) from surefoot.outbox_entries") == [(0,)]
    async with await psycopg.AsyncConnection.connect(scene.database.url) as anyone:
        await anyone.execute("update surefoot.runs set state = state")
        [[tenant]] = await (await anyone.execute("select current_setting('surefoot.tenant', true)")).fetchall()
        assert not tenant


async def test_entries_of_a_run_go_in_the_order_of_its_states(scene: Scene) -> None:
    run_id = await scene.start()
    for n in range(3):
        await hold(scene, run_id, n)
        await scene.release(run_id)
    order: list[int] = []
    for _ in range(3):
        async with scene.database.all_tenants("relay.claim") as session:
            [delivery] = await outbox.claim_due(
                session, consumers=["app"], agents=(), worker_id=BOB, lease_s=60, limit=9
            )
            assert isinstance(delivery.payload, dict)
            order.append(int(str(delivery.payload["event"])))
            await outbox.acknowledge(session, delivery, receipt=None)
    assert order == sorted(order)


async def test_without_the_trigger_nothing_is_told(scene: Scene) -> None:
    await scene.rows("alter table surefoot.runs disable trigger tell_run_state")
    await finish(scene, RunState.COMPLETED, output="done")
    assert await told(scene) == []
