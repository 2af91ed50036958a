"""What ends together is settled together: each names its attempt, and one that cannot be settled loses no other."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from outbox import Delivered, Undelivered
from outbox.settling import Settling
from tests.races.scenes import ADA, BOB, Scene
from tests.races.test_subscriptions import put
from transactions import Fenced, WorkerId, outbox
from transactions.outbox import Delivery, End

STATES = "select entry_id, state, attempt, receipt, detail from surefoot.outbox_deliveries order by 1"


async def claimed(scene: Scene, worker_id: WorkerId = ADA) -> Sequence[Delivery]:
    async with scene.database.all_tenants("relay.claim") as session:
        found = await outbox.claim_due(
            session, consumers=["news"], agents=(), worker_id=worker_id, lease_s=60, limit=99
        )
    return sorted(found, key=lambda delivery: delivery.entry_id)


class Commits:
    """Counts commits by what each settles, and refuses what is called `bad`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        settle = outbox.settle

        async def counted(session: Any, ends: Sequence[End]) -> frozenset[tuple[str, str, int]]:
            if any(end.delivery.entry_id == "bad" for end in ends):
                raise ValueError("cannot be stored")
            self.sizes.append(len(ends))
            return await settle(session, ends)

        monkeypatch.setattr("outbox.settling.outbox.settle", counted)


def settling(scene: Scene, still_mine: Any = lambda: None) -> Settling:
    return Settling(scene.database, still_mine, backoff_s_max=300.0)


async def test_what_ends_while_a_commit_is_under_way_shares_the_next_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(scene, *(f"{n}" for n in range(30)))
    commits, desk = Commits(monkeypatch), settling(scene)
    held = await asyncio.gather(*(desk.settle(one, Delivered(one.attempt)) for one in await claimed(scene)))
    assert held == [True] * 30
    assert sum(commits.sizes) == 30
    assert len(commits.sizes) <= 2
    assert await scene.rows("select state, count(*) from surefoot.outbox_deliveries group by 1") == [("delivered", 30)]
    assert await scene.rows("select count(*) from surefoot.inbox") == [(30,)]


async def test_one_that_cannot_be_stored_does_not_lose_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(scene, "a", "bad", "c")
    Commits(monkeypatch)
    desk = settling(scene)
    a, bad, c = await asyncio.gather(
        *(desk.settle(one, Delivered()) for one in await claimed(scene)), return_exceptions=True
    )
    assert (a, c) == (True, True)
    assert isinstance(bad, ValueError)
    assert [(row[0], row[1]) for row in await scene.rows(STATES)] == [
        ("a", "delivered"),
        ("bad", "claimed"),
        ("c", "delivered"),
    ]


async def test_in_one_commit_each_names_the_attempt_it_claimed(scene: Scene) -> None:
    await put(scene, "a", "b")
    old = await claimed(scene)
    await scene.rows("update surefoot.outbox_deliveries set lease_until = now() - interval '1 s' where entry_id = 'b'")
    new = await claimed(scene, BOB)
    assert [(one.entry_id, one.attempt) for one in new] == [("b", 2)]
    desk = settling(scene)
    assert await asyncio.gather(*(desk.settle(one, Delivered("late")) for one in old)) == [True, False]
    assert [row[:3] for row in await scene.rows(STATES)] == [("a", "delivered", 1), ("b", "claimed", 2)]
    assert await scene.rows("select entry_id from surefoot.inbox order by 1") == [("a",), ("b",)]  # it happened


async def test_every_kind_of_end_fits_into_one_commit(scene: Scene) -> None:
    await put(scene, "a", "b", "c")
    desk = settling(scene)
    ends = [Delivered({"n": 1}, "told"), Undelivered("later", again_s=7.0), Undelivered("never", final=True)]
    pairs = zip(await claimed(scene), ends, strict=True)
    assert await asyncio.gather(*(desk.settle(one, end) for one, end in pairs)) == [True] * 3
    assert await scene.rows(STATES) == [
        ("a", "delivered", 1, {"n": 1}, "told"),
        ("b", "pending", 1, None, "later"),
        ("c", "dead", 1, None, "never"),
    ]


@pytest.mark.parametrize(
    ("receipt", "kept"),
    [
        (object(), "the receipt is not JSON: TypeError"),
        ({1: {2, 3}}, "the receipt is not JSON: TypeError"),
        ("x" * (outbox.RECEIPT_BYTES_MAX + 1), "the receipt has over 65536 bytes"),
    ],
)
async def test_a_receipt_that_cannot_be_kept_is_left_out_and_it_is_delivered(
    scene: Scene, receipt: Any, kept: str
) -> None:
    await put(scene, "a")
    [one] = await claimed(scene)
    assert await settling(scene).settle(one, Delivered(receipt))
    [[_, state, _, stored, _]] = await scene.rows(STATES)
    assert state == "delivered"
    assert stored["not_kept"].startswith(kept)


@pytest.mark.parametrize(
    ("again_s", "within"), [(1e300, "31 days"), (float("inf"), "31 days"), (float("nan"), "1 min")]
)
async def test_a_time_that_is_none_stops_nothing(scene: Scene, again_s: float, within: str) -> None:
    await put(scene, "a")
    [one] = await claimed(scene)
    assert await settling(scene).settle(one, Undelivered("busy", again_s=again_s))
    due = "select state, due_at < clock_timestamp() + %s::interval from surefoot.outbox_deliveries"
    assert await scene.rows(due, within) == [("pending", True)]


async def test_who_is_fenced_settles_nothing_and_all_who_wait_are_told(scene: Scene) -> None:
    def still_mine() -> None:
        raise Fenced("lost its lease")

    await put(scene, "a", "b")
    desk = settling(scene, still_mine)
    told = await asyncio.gather(
        *(asyncio.wait_for(desk.settle(one, Delivered()), 5) for one in await claimed(scene)), return_exceptions=True
    )
    assert [type(one) for one in told] == [Fenced, Fenced]
    assert [row[1] for row in await scene.rows(STATES)] == ["claimed", "claimed"]


async def test_what_is_not_committed_when_the_relay_stops_is_left_to_its_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(session: Any, ends: Sequence[End]) -> frozenset[tuple[str, str, int]]:
        await asyncio.Event().wait()
        return frozenset()

    await put(scene, "a", "b")
    monkeypatch.setattr("outbox.settling.outbox.settle", hangs)
    desk = settling(scene)
    waiting = [asyncio.create_task(desk.settle(one, Delivered())) for one in await claimed(scene)]
    await asyncio.sleep(0.1)
    await asyncio.wait_for(desk.stop(), 5)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [task.cancelled() for task in waiting] == [True, True]
    assert [row[1] for row in await scene.rows(STATES)] == ["claimed", "claimed"]
