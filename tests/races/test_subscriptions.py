"""Who gets the entries of a topic, and how much of them at once: over all writers, all workers and their deaths."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from outbox import Outcome, Undelivered
from tests.races.scenes import ADA, BOB, Scene
from tests.races.test_relay import Takes, relay_of, running, until
from transactions import DEFAULT_TENANT, EntryId, InvalidInput, Run, RunId, Tenant, Tx, outbox, subscriptions
from transactions.outbox import Delivery
from transactions.statements import load

ADDRESSED = "select consumer from surefoot.outbox_deliveries where entry_id = %s order by consumer"


async def announce(scene: Scene, consumer: str, *topics: str, **limits: Any) -> None:
    said = {"passes_dead": False, "in_flight_max": None, "per_second_max": None, **limits}
    async with scene.database.all_tenants("worker.register") as session:
        await subscriptions.announce(session, consumer=consumer, topics=topics, **said)


async def put(scene: Scene, *names: str, topic: str = "news", tenant: Tenant = DEFAULT_TENANT, **more: Any) -> None:
    async with scene.database.transaction("tool.transaction", tenant) as session:
        for name in names:
            await outbox.put(
                session,
                entry_id=EntryId(name),
                tenant=tenant,
                run_id=None,
                action_id=None,
                topic=topic,
                payload={},
                **more,
            )


async def addressed(scene: Scene, name: str) -> Sequence[str]:
    return [consumer for (consumer,) in await scene.rows(ADDRESSED, name)]


async def claim(scene: Scene, consumer: str, limit: int = 9) -> list[str]:
    async with scene.database.all_tenants("relay.claim") as session:
        found = await outbox.claim_due(session, consumers=[consumer], agents=(), worker_id=ADA, lease_s=60, limit=limit)
    return [delivery.entry_id for delivery in found]


# Topics.


async def test_an_entry_goes_to_all_who_are_subscribed_when_it_is_put_whoever_puts_it(scene: Scene) -> None:
    await put(scene, "before")
    await announce(scene, "mailer", "news", "alarm")
    await announce(scene, "archive", "news")
    await put(scene, "with two")
    async with scene.database.transaction("outbox.unsubscribe", DEFAULT_TENANT) as session:
        await subscriptions.end(session, "news", "mailer", by="ada")
    await put(scene, "with one")
    await put(scene, "other", topic="alarm")
    await announce(scene, "mailer", "news")
    await put(scene, "again")
    found = [await addressed(scene, name) for name in ("before", "with two", "with one", "other", "again")]
    assert found == [["news"], ["archive", "mailer"], ["archive"], ["mailer"], ["archive", "mailer"]]


async def test_each_consumer_has_a_delivery_of_its_own_and_one_that_is_not_there_waits_for_it(scene: Scene) -> None:
    await announce(scene, "mailer", "news")
    await announce(scene, "fax", "news")
    await put(scene, "one")
    mailer, fax = Takes(), Takes()
    await scene.rows("update surefoot.workers set consumers = '{mailer}'")
    assert await relay_of(scene, {"mailer": mailer}).run_once() == 1
    standing = "select consumer, standing from surefoot.outbox_open"
    assert await scene.rows(standing) == [("fax", "undeliverable")]
    assert await scene.rows("select consumer, is_served from surefoot.outbox_topics order by 1") == [
        ("fax", False),
        ("mailer", True),
    ]
    await scene.rows("update surefoot.workers set consumers = '{fax}' where worker_id = 'bob'")
    assert await scene.rows(standing) == [("fax", "pending")]
    assert await relay_of(scene, {"fax": fax}, BOB).run_once() == 1
    assert (mailer.order, fax.order) == (["one"], ["one"])


async def test_a_tool_cannot_write_what_surefoot_writes_itself_nor_delay_it_for_ever(scene: Scene) -> None:
    async def query(sql: str, /, **parameters: object) -> Any: ...

    execution = await scene.running()
    run = Run(RunId(execution.run_id), DEFAULT_TENANT, "report", {}, "nobody", query)
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        tx = Tx(None, run, scene.request(execution, 0, gated=False).action_id, session)
        for topic in ("effect", "run.finished", "run.waiting", "approval.requested"):
            with pytest.raises(InvalidInput, match="are written by Surefoot alone: choose another topic"):
                await tx.outbox(topic, {})
        for delay in (timedelta(seconds=-1), timedelta(days=366)):
            with pytest.raises(InvalidInput, match="give at least 0 and at most 365 days"):
                await tx.outbox("news", {}, delay=delay)


# A delayed entry, and a dead one.


async def test_a_delayed_entry_is_not_due_before_and_holds_the_later_ones_of_its_key_back(scene: Scene) -> None:
    await put(scene, "later", key="k", delay=timedelta(hours=1))
    await put(scene, "behind it", key="k")
    await put(scene, "of another key", key="l")
    assert await claim(scene, "news") == ["of another key"]
    found = await scene.rows("select entry_id, why from surefoot.outbox_open where state = 'pending' order by key_seq")
    assert found == [
        ("later", "it was put to go later: see due_at"),
        ("behind it", "it follows entry later of the same key"),
    ]
    await scene.rows("update surefoot.outbox_deliveries set due_at = due_at - interval '1 hour'")
    assert await claim(scene, "news") == ["later"]


@pytest.mark.parametrize("passes", [True, False])
async def test_a_dead_entry_blocks_its_key_or_is_passed_as_its_consumer_says(scene: Scene, passes: bool) -> None:
    await announce(scene, "news", "news", passes_dead=passes)
    await put(scene, "first", "second", "third", key="k")
    await scene.rows(
        "update surefoot.outbox_deliveries set state = 'dead', settled_at = now(), detail = 'no'"
        " where entry_id = 'first'"
    )
    standing = "select entry_id, standing from surefoot.outbox_open order by key_seq"
    behind = "pending" if passes else "blocked"
    assert await scene.rows(standing) == [("first", "dead"), ("second", behind), ("third", behind)]
    assert await claim(scene, "news") == (["second"] if passes else [])


# Limits of a consumer, over all workers.


async def test_no_more_is_in_flight_than_a_consumer_may_have_over_all_workers(scene: Scene) -> None:
    await announce(scene, "news", "news", in_flight_max=3)
    await put(scene, *(f"{n}" for n in range(9)))
    first, second = Takes(hangs=lambda delivery: True), Takes(hangs=lambda delivery: True)
    one, two = relay_of(scene, {"news": first}), relay_of(scene, {"news": second}, BOB)
    async with running(one), running(two):
        await until("three are in flight", lambda: first.at_once + second.at_once == 3)
        await asyncio.sleep(0.5)
        assert first.at_once + second.at_once == 3
    await scene.rows("update surefoot.workers set state = 'dead', ended_at = now() where worker_id = 'ada'")
    taking = Takes()
    async with running(relay_of(scene, {"news": taking}, BOB)):
        await until("what a dead worker had does not count", lambda: len(taking.order) >= 6, within_s=20)


async def claims_while_another_does(scene: Scene) -> bool:
    """Whether a second worker is told how much it may claim before a first one has committed its claims."""
    await announce(scene, "news", "news", in_flight_max=3)
    await put(scene, *(f"{n}" for n in range(9)))

    async def second() -> int:
        async with scene.database.all_tenants("relay.claim") as session:
            return (await subscriptions.allowances(session, ["news"], limit=20))["news"].deliveries

    async with scene.database.all_tenants("relay.claim") as session:
        assert (await subscriptions.allowances(session, ["news"], limit=20))["news"].deliveries == 3
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.3)
        early = waiting.done()
        await outbox.claim_due(session, consumers=["news"], agents=(), worker_id=ADA, lease_s=60, limit=3)
    assert await waiting == (3 if early else 0)
    return early


async def test_of_two_who_claim_at_once_the_second_sees_what_the_first_has_claimed(scene: Scene) -> None:
    assert not await claims_while_another_does(scene)


async def test_without_the_lock_both_would_use_the_same_room(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = dict(load("subscriptions"))
    unlocked = statements["lock_limited"].text.replace("for no key update", "")
    assert unlocked != statements["lock_limited"].text
    monkeypatch.setattr(subscriptions, "_SUBSCRIPTIONS", {**statements, "lock_limited": text(unlocked)})
    assert await claims_while_another_does(scene)


async def test_no_more_is_begun_in_a_second_than_a_consumer_may_have_over_all_workers(scene: Scene) -> None:
    """So slow that the test's own time does not count: one in 1000 s."""
    await announce(scene, "news", "news", per_second_max=0.001)
    await put(scene, *(f"{n}" for n in range(9)))
    taken = Takes()
    one, two = relay_of(scene, {"news": taken}), relay_of(scene, {"news": taken}, BOB)
    assert [await relay.run_once() for relay in (one, two, one, two)] == [1, 0, 0, 0]
    await scene.rows("update surefoot.consumer_limits set filled_at = filled_at - interval '5000 s'")
    assert [await relay.run_once() for relay in (two, one, two)] == [1, 0, 0]
    await announce(scene, "news", "news")
    assert await one.run_once() == 7
    assert len(taken.order) == 9


async def test_a_consumer_that_asks_to_be_left_alone_is_left_alone_by_all_workers(scene: Scene) -> None:
    class Limited(Takes):
        again_s = 1000.0

        async def take(self, delivery: Delivery) -> Outcome:
            self.order.append(delivery.entry_id)
            return Undelivered("429 Too Many Requests", again_s=self.again_s)

    limited = Limited()
    await put(scene, *(f"{n}" for n in range(9)))
    one = relay_of(scene, {"news": limited}, in_flight_max=1)
    two = relay_of(scene, {"news": limited}, BOB, in_flight_max=1)
    assert [await relay.run_once() for relay in (one, two, one, two)] == [1, 0, 0, 0]
    attempts = "select sum(attempt) from surefoot.outbox_deliveries"
    assert await scene.rows(attempts) == [(1,)]
    [[why]] = await scene.rows("select why from surefoot.outbox_backlog")
    assert why.startswith("nothing goes to news until ")
    assert why.endswith(", which it asked for: 429 Too Many Requests")
    await scene.rows("update surefoot.consumer_limits set paused_until = clock_timestamp()")
    limited.again_s = 0.0  # the control: one that does not ask is asked again with the next entry
    assert [await relay.run_once() for relay in (two, one, two)] == [1, 1, 1]
    assert len(limited.order) == 4


async def test_a_pause_ends_after_an_hour_whatever_was_asked_for(scene: Scene) -> None:
    async with scene.database.all_tenants("relay.settle") as session:
        await subscriptions.pause(session, "news", pause_s=1e12, why="Retry-After: Fri, 31 Dec 9999")
        await subscriptions.pause(session, "news", pause_s=1.0, why="sooner")
    [[hour, why]] = await scene.rows(
        "select paused_until - clock_timestamp() between '59 min' and '60 min', paused_why"
        " from surefoot.consumer_limits"
    )
    assert (hour, why) == (True, "Retry-After: Fri, 31 Dec 9999")
