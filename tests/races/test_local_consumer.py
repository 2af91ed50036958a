"""A local consumer: what it writes, its inbox row and the acknowledgement are one commit, and there once."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text

from outbox import Delivered, LocalConsumer, Settled, Undelivered
from tests.races.scenes import ADA, BOB, Scene
from tests.races.test_relay import relay_of, running
from tests.races.test_subscriptions import put
from transactions import Database, InvalidInput, Session, outbox
from transactions.failpoints import ARMED
from transactions.outbox import Delivery

WRITTEN = "select entry_id from public.ledger order by 1"
_WRITE = text("insert into public.ledger (entry_id, attempt) values (:entry_id, :attempt)")


async def write(session: Session, delivery: Delivery) -> None:
    await session.execute(_WRITE, {"entry_id": delivery.entry_id, "attempt": delivery.attempt})


@pytest.fixture(autouse=True)
async def ledger(scene: Scene) -> None:
    """The application's own table: nothing in it keeps a second row of an entry out."""
    await scene.rows("create table public.ledger (entry_id text not null, attempt integer not null)")
    await scene.rows("grant select, insert on public.ledger to surefoot_app")


async def claimed(scene: Scene, *, worker_id: Any = ADA) -> Delivery:
    async with scene.database.all_tenants("relay.claim") as session:
        [found] = await outbox.claim_due(
            session, consumers=["news"], agents=(), worker_id=worker_id, lease_s=60, limit=1
        )
    return found


async def states(scene: Scene) -> list[Any]:
    return await scene.rows(
        "select state, attempt, exists (select 1 from surefoot.inbox i where i.entry_id = d.entry_id)"
        " from surefoot.outbox_deliveries d"
    )


async def test_its_writes_and_its_word_are_one_commit(scene: Scene) -> None:
    await put(scene, "one", "two", key="k")
    async with running(relay_of(scene, {"news": LocalConsumer(write)}, poll_s=30.0)):
        await _until_rows(scene, WRITTEN, [("one",), ("two",)])
    assert await states(scene) == [("delivered", 1, True)] * 2


async def _until_rows(scene: Scene, query: str, expected: list[Any]) -> None:
    async with asyncio.timeout(10):
        while await scene.rows(query) != expected:  # noqa: ASYNC110  what is looked at is in the database
            await asyncio.sleep(0.02)


async def test_what_it_raises_or_refuses_leaves_nothing(scene: Scene) -> None:
    answers: list[Undelivered | None] = [Undelivered("not yet"), None]

    async def body(session: Session, delivery: Delivery) -> Undelivered | None:
        await write(session, delivery)
        if not answers:
            raise RuntimeError("broken")
        return answers.pop(0)

    await put(scene, "one")
    relay = relay_of(scene, {"news": LocalConsumer(body)})
    assert await relay.run_once() == 1
    assert await states(scene) == [("pending", 1, False)]
    assert await scene.rows(WRITTEN) == []
    await scene.rows("update surefoot.outbox_deliveries set due_at = now()")
    assert await relay.run_once() == 1
    assert await states(scene) == [("delivered", 2, True)]
    await put(scene, "two")
    assert await relay.run_once() == 1
    assert await scene.rows("select detail from surefoot.outbox_deliveries where state = 'pending'") == [
        ("RuntimeError: broken",)
    ]
    assert await scene.rows(WRITTEN) == [("one",)]


@asynccontextmanager
async def taken_by_two(scene: Scene, take: Callable[[Delivery], Awaitable[object]]) -> AsyncGenerator[list[object]]:
    """A frozen worker and the one that took over take the same entry at the same moment."""
    await put(scene, "one")
    first = await claimed(scene)
    await scene.rows("update surefoot.outbox_deliveries set lease_until = now() - interval '1 s'")
    second = await claimed(scene, worker_id=BOB)
    assert (first.attempt, second.attempt) == (1, 2)
    yield list(await asyncio.gather(take(first), take(second)))


async def test_of_two_who_take_it_at_once_one_writes(scene: Scene) -> None:
    consumer = LocalConsumer(write).on(scene.database)
    async with taken_by_two(scene, consumer.take) as outcomes:
        assert sorted(map(repr, outcomes)) == sorted(
            map(repr, [Settled(delivered=True), Delivered(detail="taken before")])
        )
    assert await scene.rows(WRITTEN) == [("one",)]


async def test_without_the_inbox_both_would_write(scene: Scene) -> None:
    async def take(delivery: Delivery) -> None:
        async with scene.database.transaction("consumer.take", delivery.tenant) as session:
            await write(session, delivery)
            await outbox.acknowledge(session, delivery, receipt=None)

    async with taken_by_two(scene, take):
        assert await scene.rows(WRITTEN) == [("one",), ("one",)]


async def test_one_that_has_no_database_says_so(scene: Scene) -> None:
    await put(scene, "one")
    with pytest.raises(InvalidInput, match="let a worker have it"):
        await LocalConsumer(write).take(await claimed(scene))


@pytest.mark.parametrize("point", ["consumer.take.before_commit", "consumer.take.after_commit"])
async def test_who_dies_there_has_written_all_or_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The worker's task stands still for good at the point; another one takes over."""
    await put(scene, "one")
    stands = asyncio.Event()

    def stand(name: str) -> None:
        if name == point and not stands.is_set():
            stands.set()
            raise asyncio.CancelledError

    monkeypatch.delenv(ARMED, raising=False)
    monkeypatch.setattr("transactions.database.failpoint", stand)
    database = Database(scene.database.url)
    task = asyncio.create_task(LocalConsumer(write, database).take(await claimed(scene)))
    await asyncio.gather(task, return_exceptions=True)
    await database.close()
    assert stands.is_set()
    committed = point.endswith("after_commit")
    assert await states(scene) == [("delivered", 1, True) if committed else ("claimed", 1, False)]
    assert await scene.rows(WRITTEN) == ([("one",)] if committed else [])
    await scene.rows("update surefoot.workers set state = 'dead', ended_at = now() where worker_id = 'ada'")
    await relay_of(scene, {"news": LocalConsumer(write)}, BOB).run_once()
    assert await scene.rows(WRITTEN) == [("one",)]
    assert (await states(scene))[0][0] == "delivered"
