"""Two relays at one backlog, with writers, deaths and late answers: one live claimant each, and the order of a key."""

import asyncio
import contextlib
import os
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

import outbox as outbox_arm
from tests.races.interleave import Pace, in_lanes
from tests.races.invariants import consistent
from tests.races.scenes import ADA, BOB, LEASE_S, Scene, register
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    Conflict,
    EntryId,
    NotFound,
    Tenant,
    Wakeups,
    WorkerId,
    backlog,
    outbox,
)
from transactions.outbox import Delivery, End
from transactions.statements import load
from transactions.states import DELIVERY_TRANSITIONS, DeliveryState

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 5
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
CONSUMERS = ("mail", "archive")
TENANTS = (DEFAULT_TENANT, Tenant("b"))

_DIES = text("update surefoot.workers set state = 'dead', ended_at = clock_timestamp() where worker_id = :worker_id")
_LEASES_OVER = text(
    "update surefoot.outbox_deliveries set lease_until = clock_timestamp() - interval '1 s'"
    " where state = 'claimed' and worker_id = :worker_id"
)


_CLEAR = (
    "update surefoot.outbox_deliveries set state = 'discarded', lease_until = null, settled_at = clock_timestamp()"
    " where settled_at is null"
)


class TakenBack(Exception):
    """The writer's transaction rolls back."""


@dataclass(slots=True)
class Said:
    """What was said to the outbox, and what it answered."""

    acknowledged: list[tuple[Delivery, bool]] = field(default_factory=list)
    claimed: list[Delivery] = field(default_factory=list)


@dataclass(slots=True)
class Relay:
    """Claims a few and settles what it claimed, sometimes late, sometimes again."""

    scene: Scene
    worker_id: WorkerId
    random: random.Random
    said: Said
    hands: list[Delivery] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)

    async def work(self, acts: int) -> None:
        for _ in range(acts):
            if not self.hands or self.random.random() < 0.3:
                await self.claim()
            else:
                await self.settle()
            if self.done and self.random.random() < 0.2:
                await self.acknowledge(self.random.choice(self.done))

    async def claim(self) -> None:
        async with self.scene.database.all_tenants("relay.claim") as session:
            claimed = await outbox.claim_due(
                session,
                consumers=CONSUMERS,
                agents=(),
                worker_id=self.worker_id,
                lease_s=LEASE_S,
                limit=self.random.randint(1, 3),
            )
        self.hands += claimed
        self.said.claimed += claimed

    async def settle(self) -> None:
        delivery = self.hands.pop(self.random.randrange(len(self.hands)))
        self.done.append(delivery)
        match self.random.choice(("acknowledge", "acknowledge", "acknowledge", "back off", "bury")):
            case "acknowledge":
                await self.acknowledge(delivery)
            case "back off":
                async with self.scene.database.transaction("relay.settle", delivery.tenant) as session:
                    await outbox.settle(session, [End(delivery, "pending", "later", pause_s=0.0)])
            case _:
                async with self.scene.database.transaction("relay.settle", delivery.tenant) as session:
                    await outbox.settle(session, [End(delivery, "dead", "never")])

    async def acknowledge(self, delivery: Delivery) -> None:
        async with self.scene.database.transaction("relay.settle", delivery.tenant) as session:
            held = await outbox.acknowledge(session, delivery, receipt={"attempt": delivery.attempt})
        self.said.acknowledged.append((delivery, held))


async def test_one_live_claimant_and_the_order_of_a_key(scene: Scene, pace: Pace) -> None:
    await in_lanes(range(SEED, SEED + INTERLEAVINGS), partial(_play, scene, pace), lanes=1)


async def _play(scene: Scene, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    said = Said()
    [[start]] = await scene.rows("select coalesce(max(id), 0) from audit.moves")
    await _write(scene, seed, "before", stage.random, keep=True)
    for name in ("one", "two")[: stage.random.randint(0, 2)]:
        own = random.Random(stage.random.random())
        stage.actor(f"writer {name}", partial(_write, scene, seed, name, own, keep=stage.random.random() < 0.8))
    for worker_id in (ADA, BOB):
        relay = Relay(scene, worker_id, random.Random(stage.random.random()), said)
        stage.actor(worker_id, partial(relay.work, stage.random.randint(3, 7)))
    for name in ("eve", "dan")[: stage.random.randint(0, 2)]:
        stage.actor(name, partial(_decide, scene, seed, name, random.Random(stage.random.random())))
    meddlers: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("ada is declared dead", partial(_admin, scene, _DIES, ADA)),
        ("bob is declared dead", partial(_admin, scene, _DIES, BOB)),
        ("ada's leases run out", partial(_admin, scene, _LEASES_OVER, ADA)),
        ("bob's leases run out", partial(_admin, scene, _LEASES_OVER, BOB)),
    ]
    for name, act in stage.random.sample(meddlers, k=stage.random.randint(0, 2)):
        stage.actor(name, act)
    try:
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            if not isinstance(actor.error, TakenBack):
                actor.outcome()
        await _judged(scene, said, seed, start)
    except Exception:
        print(f"seed {seed}")
        print("\n".join(stage.trace))
        raise
    finally:
        await scene.rows("update surefoot.workers set state = 'live', ended_at = null")
        await scene.rows(_CLEAR)
    pace.note("claims", len(said.claimed))
    pace.note("acknowledgements refused", sum(not held for _, held in said.acknowledged))


async def _write(scene: Scene, seed: int, name: str, own: random.Random, *, keep: bool) -> None:
    """A transaction of one to three entries, of one key or none, in two tenants."""
    tenant = own.choice(TENANTS)
    async with scene.database.transaction("tool.transaction", tenant) as session:
        for i in range(own.randint(1, 3)):
            await outbox.put(
                session,
                entry_id=EntryId(f"{seed} {name} {i}"),
                tenant=tenant,
                run_id=None,
                action_id=None,
                topic="mail",
                payload={"n": i},
                consumers=own.choice((CONSUMERS, CONSUMERS[:1])),
                key=own.choice((f"{seed} a", f"{seed} a", f"{seed} b", None)),
            )
        if not keep:
            raise TakenBack


async def _decide(scene: Scene, seed: int, name: str, own: random.Random) -> None:
    """A person redrives what is dead, and now and then gives something up."""
    for _ in range(own.randint(2, 5)):
        entry_id = EntryId(f"{seed} {own.choice(('before', 'one', 'two'))} {own.randint(0, 2)}")
        consumer = own.choice((None, *CONSUMERS))
        with contextlib.suppress(Conflict, NotFound):
            async with scene.database.transaction("outbox.redrive", own.choice(TENANTS)) as session:
                if own.random() < 0.8:
                    await backlog.redrive(session, entry_id, consumer=consumer, by=name)
                else:
                    await backlog.discard(session, entry_id, consumer=consumer, reason="no", by=name)


async def _admin(scene: Scene, statement: Any, worker_id: WorkerId) -> None:
    async with scene.database.all_tenants("time") as session:
        await session.execute(statement, {"worker_id": worker_id})


async def _judged(scene: Scene, said: Said, seed: int, start: int) -> None:
    entries = {
        entry_id: (tenant, key, seq)
        for entry_id, tenant, key, seq in await scene.rows(
            "select entry_id, tenant, key, key_seq from surefoot.outbox_entries where entry_id like %s", f"{seed} %"
        )
    }
    numbers: dict[Any, list[int]] = defaultdict(list)
    for tenant, key, seq in entries.values():
        if key is not None:
            numbers[tenant, key].append(seq)
    for stream, seqs in numbers.items():
        assert sorted(seqs) == list(range(1, len(seqs) + 1)), f"numbers of {stream}: {sorted(seqs)}"
    moves = await scene.rows(
        "select thing, key, old, new, attempt, worker_id from audit.moves where id > %s order by id", start
    )
    _walk(moves, entries, said)


def _walk(moves: Sequence[Sequence[Any]], entries: Mapping[str, Any], said: Said) -> None:
    """Through the changes in their order: whose each delivery was, and what came before it."""
    state: dict[str, str] = {}
    holder: dict[str, tuple[str, int]] = {}
    over: set[str] = set()  # deliveries whose lease ran out
    dead: set[str] = set()
    delivered: dict[str, int] = {}
    for thing, name, old, new, attempt, worker_id in moves:
        if thing == "workers":
            (dead.add if new == "dead" else dead.discard)(name)
            continue
        if thing != "outbox_deliveries":
            continue
        if (old, new) == ("claimed", "claimed") and holder[name] == (worker_id, attempt):
            over.add(name)  # only its lease was changed
            continue
        if new == "claimed":
            if old == "claimed":
                last = holder[name]
                assert last[0] in dead or name in over, f"{name} was {last}'s, who lives, and {worker_id} has it too"
            assert attempt == holder.get(name, ("", 0))[1] + 1
            _is_head(name, entries, state)
            holder[name] = (worker_id, attempt)
            over.discard(name)
        if old is not None and old != new:
            assert new in DELIVERY_TRANSITIONS[DeliveryState(old)], f"{name}: {old} -> {new}"
        if new == "delivered":
            delivered[name] = attempt
        state[name] = new
    for delivery, held in said.acknowledged:
        if held:
            name = f"{delivery.entry_id}>{delivery.consumer}"
            assert delivered[name] == delivery.attempt, f"{name}: acknowledged by attempt {delivery.attempt}"
    took = [(d.entry_id, d.consumer) for d, held in said.acknowledged if held]
    assert len(took) == len(set(took)), "acknowledged twice"


def _is_head(name: str, entries: Mapping[str, Any], state: Mapping[str, str]) -> None:
    entry_id, _, consumer = name.rpartition(">")
    tenant, key, seq = entries[entry_id]
    for other, (its_tenant, its_key, its_seq) in entries.items():
        if key is not None and (its_tenant, its_key) == (tenant, key) and its_seq < seq:
            before = state.get(f"{other}>{consumer}", "not for this consumer")
            assert before in ("delivered", "discarded", "not for this consumer"), f"{name} before {other}, {before}"


async def test_an_acknowledgement_of_an_old_attempt_would_count_without_its_check(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = dict(load("outbox"))
    checked = statements["settle_attempts"].text
    spoilt = checked.replace("and d.worker_id = e.worker_id and d.attempt = e.attempt", "")
    assert spoilt != checked
    statements["settle_attempts"] = text(spoilt)
    monkeypatch.setattr(outbox, "_OUTBOX", statements)
    caught: list[str] = []
    for seed in range(60):
        try:
            await _play(scene, Pace(), seed)
        except AssertionError as error:
            caught.append(str(error))
    assert any("acknowledged" in why for why in caught), "this test would see no defect"


async def test_a_live_claimant_is_not_robbed_by_someone_who_cannot_see_its_worker(scene: Scene) -> None:
    """That no row of a worker is seen, such as one of another tenant, is no sign of its death."""
    tenant = Tenant("b")
    execution = await scene.running(tenant)
    await scene.rows("update surefoot.workers set tenant = 'elsewhere'")
    request = scene.request(execution, 0, gated=False)
    async with scene.database.transaction("tool.effect", tenant) as session:
        await scene.prepare(session, execution, request)
        assert await outbox.take_effect(session, request.action_id, worker_id=ADA, lease_s=LEASE_S) == 1
    async with scene.database.transaction("tool.effect", tenant) as session:
        assert await outbox.take_effect(session, request.action_id, worker_id=BOB, lease_s=LEASE_S) is None


async def test_a_claimant_that_registered_while_another_waited_is_not_robbed(scene: Scene) -> None:
    """Who waited for the row reads the claim in its newest version, and the workers as they were when it began."""
    execution = await scene.running()
    request = scene.request(execution, 0, gated=False)
    async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
        await scene.prepare(session, execution, request)
    async with await psycopg.AsyncConnection.connect(scene.database.url) as first:
        await first.execute("update surefoot.outbox_deliveries set detail = 'held by its first claimant'")
        bob = asyncio.create_task(_take(scene, request.action_id, BOB))
        await asyncio.sleep(0.2)
        async with scene.database.all_tenants("register") as session:
            await register(session, WorkerId("newcomer"))
        # Of two who wait, Postgres may serve the newcomer first: its claim is what the row says when it is free.
        await first.execute(
            "update surefoot.outbox_deliveries set state = 'claimed', worker_id = 'newcomer', attempt = 1,"
            " lease_until = clock_timestamp() + interval '1 hour'"
        )
        assert not bob.done()
        await first.commit()
    assert await bob is None, "the newcomer lives, and its claim was taken"


async def _take(scene: Scene, action_id: ActionId, worker_id: WorkerId) -> int | None:
    async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
        return await outbox.take_effect(session, action_id, worker_id=worker_id, lease_s=LEASE_S)


async def test_a_delivery_whose_claimants_all_die_is_buried(scene: Scene) -> None:
    """It may be what they die of; without a bound every worker would, one after the other."""
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        await outbox.put(
            session,
            entry_id=EntryId("poison"),
            tenant=DEFAULT_TENANT,
            run_id=None,
            action_id=None,
            topic="mail",
            payload={},
            consumers=("mail",),
            attempts_max=2,
        )

    class Mail:
        taken = 0

        async def take(self, delivery: Delivery) -> outbox_arm.Outcome:
            self.taken += 1
            raise Died

    mail = Mail()
    for n in range(3):
        worker_id = WorkerId(f"claimant {n}")
        async with scene.database.all_tenants("register") as session:
            await register(session, worker_id)
        relay = outbox_arm.Relay(
            scene.database,
            {"mail": mail},
            agents=(),
            worker_id=worker_id,
            wakeups=Wakeups(scene.database.url),
            still_mine=lambda: None,
        )
        await relay.run_once()
        await _admin(scene, _DIES, worker_id)
    assert mail.taken == 2
    assert await scene.rows("select state, attempt from surefoot.outbox_deliveries") == [("dead", 3)]


async def test_what_a_person_does_with_an_entry_is_an_event_of_its_run(scene: Scene) -> None:
    execution = await scene.running()
    entry_id = EntryId(f"{execution.run_id}/1/0:tool#mail:0")
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        await outbox.put(
            session,
            entry_id=entry_id,
            tenant=DEFAULT_TENANT,
            run_id=execution.run_id,
            action_id=None,
            topic="mail",
            payload={},
            consumers=CONSUMERS,
        )
    await scene.rows("update surefoot.outbox_deliveries set state = 'dead', settled_at = now(), detail = 'refused'")
    async with scene.database.transaction("outbox.redrive", DEFAULT_TENANT) as session:
        assert await backlog.redrive(session, entry_id, consumer="mail", by="ada") == ["mail"]
    async with scene.database.transaction("outbox.discard", DEFAULT_TENANT) as session:
        assert await backlog.discard(session, entry_id, consumer=None, reason="no", by="bob") == ["archive"]
    seen = await scene.seen(execution.run_id)
    assert [(event["kind"], event["data"]) for event in seen["events"][-2:]] == [
        ("delivery.redriven", {"entry": entry_id, "consumers": ["mail"], "by": "ada"}),
        ("delivery.discarded", {"entry": entry_id, "consumers": ["archive"], "by": "bob", "reason": "no"}),
    ]
    consistent(seen)


class Died(BaseException):
    """The process ends with a delivery in its hands."""
