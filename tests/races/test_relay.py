"""One worker's relay with consumers that are slow, hang or fail: who is delayed, whose claim is kept."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outbox import Consumer, Delivered, Outcome, Relay, RelaySettings
from tests.races.scenes import ADA, BOB, Scene
from transactions import DEFAULT_TENANT, EntryId, Fenced, Wakeups, WorkerId, outbox
from transactions.outbox import Delivery

SOON_S = 6.0  # a hanging neighbour is given LEASE_S, which is longer
LEASE_S = 20.0
STATES = "select consumer, state, count(*) from surefoot.outbox_deliveries group by 1, 2 order by 1, 2"


class Takes:
    """A consumer that takes everything at once, except what `hangs` names: that never ends by itself."""

    def __init__(self, hangs: Callable[[Delivery], bool] = lambda delivery: False, takes_s: float = 0.0) -> None:
        self.hangs, self.takes_s = hangs, takes_s
        self.order: list[EntryId] = []
        self.at_once = self.at_once_most = self.stopped = 0

    async def take(self, delivery: Delivery) -> Outcome:
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        try:
            if self.hangs(delivery):
                await asyncio.Event().wait()
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        finally:
            self.at_once -= 1
        self.order.append(delivery.entry_id)
        return Delivered({"attempt": delivery.attempt})


def relay_of(scene: Scene, consumers: Mapping[str, Consumer], worker_id: WorkerId = ADA, **settings: Any) -> Relay:
    return Relay(
        scene.database,
        consumers,
        agents=(),
        worker_id=worker_id,
        wakeups=Wakeups(scene.database.url),  # not started: only the poll tells
        still_mine=settings.pop("still_mine", lambda: None),
        settings=RelaySettings(**{"poll_s": 0.1, "lease_s": LEASE_S, **settings}),
    )


@asynccontextmanager
async def running(relay: Relay, drain_s: float | None = 0.3) -> AsyncGenerator[asyncio.Task[None]]:
    task = asyncio.create_task(relay.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if drain_s is not None:
            await relay.drain(drain_s)


async def put(scene: Scene, *names: str, consumers: tuple[str, ...], key: str | None = None, tries: int = 20) -> None:
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        for name in names:
            await outbox.put(
                session,
                entry_id=EntryId(name),
                tenant=DEFAULT_TENANT,
                run_id=None,
                action_id=None,
                topic="news",
                payload={},
                consumers=consumers,
                key=key,
                attempts_max=tries,
            )


async def until(what: str, look: Callable[[], bool], within_s: float = SOON_S) -> float:
    """How long it took."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while not look():
        assert clock() - began < within_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.01)
    return clock() - began


async def test_a_consumer_that_hangs_delays_no_other(scene: Scene) -> None:
    """Fails where a round is waited for as a whole: then its neighbour waits as long as the hanging one may."""
    hanging, other = Takes(hangs=lambda delivery: True), Takes()
    await put(scene, *(f"{n}" for n in range(100)), consumers=("hanging",))
    async with running(relay_of(scene, {"hanging": hanging, "other": other})):
        await until("the hanging one has its hands full", lambda: hanging.at_once >= 20)
        for n in range(3):
            await put(scene, f"new {n}", consumers=("other",))
            await until("its neighbour's entry is delivered", lambda n=n: len(other.order) == n + 1)
    assert hanging.order == []


async def test_an_entry_that_hangs_delays_no_other_of_its_consumer_and_limits_hold(scene: Scene) -> None:
    mail = Takes(hangs=lambda delivery: delivery.entry_id == "0")
    await put(scene, *(f"{n}" for n in range(60)), consumers=("mail",))
    async with running(relay_of(scene, {"mail": mail}, in_flight_max=4)):
        await until("all the others are delivered", lambda: len(mail.order) == 59)
    assert mail.at_once_most == 4


async def test_entries_of_a_key_go_one_after_the_other_without_waiting_for_a_poll(scene: Scene) -> None:
    mail = Takes()
    names = [f"{n}" for n in range(20)]
    await put(scene, *names, consumers=("mail",), key="k")
    async with running(relay_of(scene, {"mail": mail}, poll_s=30.0)):
        await until("all of the key are delivered", lambda: len(mail.order) == 20)
    assert mail.order == names
    assert mail.at_once_most == 1


async def test_a_claim_is_renewed_while_its_consumer_works(scene: Scene) -> None:
    """Another relay that looks all the time does not get it."""
    slow, second = Takes(takes_s=3.0), Takes()
    await put(scene, "long", consumers=("mail",))
    async with running(relay_of(scene, {"mail": slow}, lease_s=2.4)):
        await until("it is in flight", lambda: slow.at_once == 1)
        async with running(relay_of(scene, {"mail": second}, BOB, lease_s=2.4)):
            await until("it is delivered", lambda: len(slow.order) == 1, within_s=10)
            await asyncio.sleep(0.2)
    assert second.at_once_most == 0
    assert await scene.rows(STATES) == [("mail", "delivered", 1)]


async def test_a_consumer_is_stopped_after_its_time_and_the_entry_comes_again(scene: Scene) -> None:
    mail = Takes(hangs=lambda delivery: delivery.attempt == 1)
    await put(scene, "long", consumers=("mail",))
    relay = relay_of(scene, {"mail": mail}, lease_s=2.4, take_s_max=1.0)
    assert await relay.run_once() == 1
    assert mail.stopped == 1
    [[state, detail]] = await scene.rows("select state, detail from surefoot.outbox_deliveries")
    assert (state, detail) == ("pending", "no answer within 1 s")
    async with running(relay):
        await until("the second attempt is taken", lambda: mail.order == ["long"])


async def test_a_consumer_whose_claim_was_lost_is_stopped(scene: Scene) -> None:
    mail = Takes(hangs=lambda delivery: True)
    await put(scene, "long", consumers=("mail",))
    async with running(relay_of(scene, {"mail": mail}, lease_s=1.5)):
        await until("it is in flight", lambda: mail.at_once == 1)
        await scene.rows("update surefoot.outbox_deliveries set worker_id = 'bob', attempt = attempt + 1")
        await until("it is stopped", lambda: mail.stopped == 1)
    assert await scene.rows("select state, worker_id, attempt from surefoot.outbox_deliveries") == [
        ("claimed", "bob", 2)
    ]


async def test_a_stop_waits_for_what_is_in_flight_and_leaves_the_rest_to_its_lease(scene: Scene) -> None:
    mail = Takes(takes_s=0.4, hangs=lambda delivery: delivery.entry_id == "hangs")
    await put(scene, "short", "hangs", consumers=("mail",))
    relay = relay_of(scene, {"mail": mail})
    async with running(relay, drain_s=None):
        await until("both are in flight", lambda: mail.at_once == 2)
    clock = asyncio.get_running_loop().time
    began = clock()
    await relay.drain(1.0)
    assert 0.9 < clock() - began < 4
    assert mail.stopped == 1
    assert await scene.rows(STATES) == [("mail", "claimed", 1), ("mail", "delivered", 1)]


async def test_a_consumer_that_cannot_be_stopped_ends_neither_the_relay_nor_the_stop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.relay._STOP_S", 0.2)
    release = asyncio.Event()

    class Stubborn(Takes):
        async def take(self, delivery: Delivery) -> Outcome:
            if delivery.entry_id != "stubborn":
                return await super().take(delivery)
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    self.stopped += 1
            return Delivered()

    mail = Stubborn()
    await put(scene, "stubborn", consumers=("mail",))
    relay = relay_of(scene, {"mail": mail}, take_s_max=0.3)
    async with running(relay, drain_s=None):
        await until("it was told to stop", lambda: mail.stopped > 0)
        await put(scene, "next", consumers=("mail",))
        await until("the next one is delivered", lambda: mail.order == ["next"])
    await asyncio.wait_for(relay.drain(0.1), 2.0)
    release.set()
    await asyncio.sleep(0)


async def test_a_worker_that_is_fenced_ends_its_relay_and_what_is_in_flight(scene: Scene) -> None:
    lost = asyncio.Event()

    def still_mine() -> None:
        if lost.is_set():
            raise Fenced("lost its lease")

    mail = Takes(hangs=lambda delivery: True)
    await put(scene, "long", consumers=("mail",))
    async with running(relay_of(scene, {"mail": mail}, lease_s=1.5, poll_s=30.0, still_mine=still_mine)) as task:
        await until("it is in flight", lambda: mail.at_once == 1)
        lost.set()  # the renewal meets it: the poll is far away
        with pytest.raises(Fenced):
            await asyncio.wait_for(task, SOON_S)
    assert mail.stopped == 1
    assert await scene.rows(STATES) == [("mail", "claimed", 1)]
