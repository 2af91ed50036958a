"""Entries, deliveries and the inbox against a model: relays that claim, die, lapse and come late; keys in order."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.model.machines import Model, changed, is_missed, search, seldom, workers
from tests.races.scenes import ADA, BOB, Scene
from transactions import DEFAULT_TENANT, Conflict, EntryId, Session, WorkerId, backlog, outbox, subscriptions
from transactions.outbox import Delivery, End

LEASE_S = 3600.0
ENTRIES_MAX = 5
CONSUMERS = ("mail", "log")
PASSES = ("log",)  # is subscribed, and has a dead entry passed
OPEN = ("pending", "claimed")


@dataclass
class Kept:
    """What the model says of a delivery."""

    state: str = "pending"
    attempt: int = 0
    worker: str | None = None
    lapsed: bool = False
    due: bool = True


class Outbox(Model):
    """A few entries, some of a key, to two consumers; two relays. Its mark keeps it apart from other examples."""

    def __init__(self, scene: Scene, loop: asyncio.Runner) -> None:
        super().__init__(scene, loop)
        self.mark = uuid.uuid4().hex[:12]
        self.entries: list[str | None] = []  # the key of each
        self.kept: dict[tuple[int, str], Kept] = {}
        self.inbox: dict[tuple[int, str], object] = {}
        self.given: list[Delivery] = []
        self.dead: set[WorkerId] = set()

    def where(self, delivery: Delivery) -> tuple[int, str]:
        return int(delivery.entry_id.rpartition("/")[2]), delivery.consumer.partition("-")[0]

    def mine(self, which: int) -> Delivery:
        return self.given[which % len(self.given)]

    def holds(self, delivery: Delivery) -> bool:
        kept = self.kept[self.where(delivery)]
        return (kept.state, kept.attempt, kept.worker) == ("claimed", delivery.attempt, delivery.worker_id)

    def may_be_claimed(self, n: int, consumer: str) -> bool:
        kept, key = self.kept[n, consumer], self.entries[n]
        before = [self.kept[m, consumer].state for m in range(n) if key is not None and self.entries[m] == key]
        if kept.state == "claimed":  # it was the head when it was claimed, whatever a person has redriven since
            return kept.lapsed or kept.worker in self.dead
        passed = ("delivered", "discarded", "dead") if consumer in PASSES else ("delivered", "discarded")
        return kept.state == "pending" and kept.due and all(state in passed for state in before)

    @initialize(far=st.sampled_from((0, 2, 3, 3, 4)))
    def set_out(self, far: int) -> None:
        """The interesting sequences are deep."""
        for consumer in PASSES:
            self.commit(
                lambda s, name=consumer: subscriptions.announce(
                    s,
                    consumer=f"{name}-{self.mark}",
                    topics=[f"topic-{self.mark}"],
                    passes_dead=True,
                    in_flight_max=None,
                    per_second_max=None,
                )
            )
        for key in ("a", "a", None)[: far + 1]:
            self.put(key, again=False, dies=False)
        if far > 1:
            self.claim(ADA, CONSUMERS, 3, dies=False)
        if far > 2:
            self.lapse(0)
            self.claim(BOB, CONSUMERS, 3, dies=False)
        if far > 3:
            for which, delivery in enumerate(self.given):
                if self.where(delivery) == (0, PASSES[0]) and self.holds(delivery):
                    self.bury(which, really=True, dies=False)

    @precondition(lambda self: len(self.entries) < ENTRIES_MAX)
    @rule(key=st.sampled_from(("a", "a", "b", None)), again=seldom, dies=seldom)
    def put(self, key: str | None, again: bool, dies: bool) -> None:
        again = again and bool(self.entries)
        n = len(self.entries) - again

        async def body(session: Session) -> bool:
            return await outbox.put(
                session,
                entry_id=EntryId(f"{self.mark}/{n}"),
                tenant=DEFAULT_TENANT,
                run_id=None,
                action_id=None,
                topic=f"topic-{self.mark}",
                payload={"n": n},
                consumers=[f"{consumer}-{self.mark}" for consumer in CONSUMERS],
                key=key,
            )

        assert self.commit(body, dies=dies) == (not again)
        if not again and not dies:
            self.entries.append(key)
            self.kept |= {(n, consumer): Kept() for consumer in CONSUMERS}

    @rule(worker=workers, consumers=st.sampled_from((CONSUMERS, CONSUMERS[:1])), limit=st.integers(1, 3), dies=seldom)
    def claim(self, worker: WorkerId, consumers: tuple[str, ...], limit: int, dies: bool) -> None:
        free = {(n, c) for n, c in self.kept if c in consumers and self.may_be_claimed(n, c)}
        claimed = self.commit(
            lambda s: outbox.claim_due(
                s,
                consumers=[f"{consumer}-{self.mark}" for consumer in consumers],
                agents=[],
                worker_id=worker,
                lease_s=LEASE_S,
                limit=limit,
            ),
            dies=dies,
        )
        assert claimed is not None
        where = [self.where(delivery) for delivery in claimed]
        assert len(set(where)) == len(where) == min(limit, len(free))
        assert set(where) <= free
        for delivery in claimed:
            kept, taken = self.kept[self.where(delivery)], self.inbox.get(self.where(delivery))
            assert delivery.attempt == kept.attempt + 1
            assert delivery.taken == (None if taken is None else {"receipt": taken})
            if not dies:
                kept.state, kept.attempt, kept.worker, kept.lapsed = "claimed", kept.attempt + 1, worker, False
                self.given.append(delivery)

    # Who took it, in time or long after somebody else did.

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 11), dies=seldom)
    def acknowledge(self, which: int, dies: bool) -> None:
        delivery, receipt = self.mine(which), f"attempt {self.mine(which).attempt}"
        held = self.holds(delivery)
        assert self.commit(lambda s: outbox.acknowledge(s, delivery, receipt=receipt), dies=dies) == held
        if dies:
            return
        self.inbox.setdefault(self.where(delivery), receipt)
        if held:
            self.kept[self.where(delivery)].state = "delivered"

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 11), dies=seldom)
    def take(self, which: int, dies: bool) -> None:
        """A local consumer, in the transaction of its effect."""
        delivery = self.mine(which)
        new = self.where(delivery) not in self.inbox
        assert self.commit(lambda s: outbox.take_into_inbox(s, delivery, result="local"), dies=dies) == new
        if not dies:
            self.inbox.setdefault(self.where(delivery), "local")

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 11), soon=st.booleans(), dies=seldom)
    def back_off(self, which: int, soon: bool, dies: bool) -> None:
        delivery, pause_s = self.mine(which), 0.0 if soon else 3600.0
        held = self.holds(delivery)
        end = End(delivery, "pending", "no", pause_s=pause_s)
        assert bool(self.commit(lambda s: outbox.settle(s, [end]), dies=dies)) == held
        if held and not dies:
            kept = self.kept[self.where(delivery)]
            kept.state, kept.due = "pending", soon

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 11), really=seldom, dies=seldom)
    def bury(self, which: int, really: bool, dies: bool) -> None:
        if not really:
            return
        delivery = self.mine(which)
        held = self.holds(delivery)
        assert bool(self.commit(lambda s: outbox.settle(s, [End(delivery, "dead", "no more")]), dies=dies)) == held
        if held and not dies:
            self.kept[self.where(delivery)].state = "dead"

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 11), dies=seldom)
    def renew(self, which: int, dies: bool) -> None:
        delivery = self.mine(which)
        held = self.holds(delivery)
        renewed = self.commit(
            lambda s: outbox.renew(
                s,
                delivery.entry_id,
                delivery.consumer,
                attempt=delivery.attempt,
                worker_id=delivery.worker_id,
                lease_s=LEASE_S,
            ),
            dies=dies,
        )
        assert renewed == held
        if held and not dies:
            self.kept[self.where(delivery)].lapsed = False

    # What a person does.

    @precondition(lambda self: self.entries)
    @rule(n=st.integers(0, ENTRIES_MAX - 1), consumer=st.sampled_from((None, *CONSUMERS)), dies=seldom)
    def redrive(self, n: int, consumer: str | None, dies: bool) -> None:
        n, to = n % len(self.entries), CONSUMERS if consumer is None else (consumer,)
        dead = [c for c in to if self.kept[n, c].state == "dead"]
        self.says(backlog.redrive, n, consumer, dead, dies=dies, by="ada")
        for name in [] if dies else dead:
            self.kept[n, name].state, self.kept[n, name].due = "pending", True

    @precondition(lambda self: self.entries)
    @rule(n=st.integers(0, ENTRIES_MAX - 1), consumer=st.sampled_from((None, *CONSUMERS)), really=seldom, dies=seldom)
    def discard(self, n: int, consumer: str | None, really: bool, dies: bool) -> None:
        if not really:
            return
        n, which = n % len(self.entries), ("dead",) if consumer is None else ("dead", "pending")
        free = [c for c in CONSUMERS if consumer in (None, c) and self.kept[n, c].state in which]
        self.says(backlog.discard, n, consumer, free, dies=dies, by="ada", reason="no")
        for name in [] if dies else free:
            self.kept[n, name].state = "discarded"

    def says(
        self, act: Callable[..., Any], n: int, consumer: str | None, done: list[str], *, dies: bool, **said: str
    ) -> None:
        """It is done to these consumers, or refused when there are none."""
        name = None if consumer is None else f"{consumer}-{self.mark}"

        def body(session: Session) -> Awaitable[list[str]]:
            return act(session, EntryId(f"{self.mark}/{n}"), consumer=name, **said)

        if done:
            assert self.commit(body, dies=dies) == sorted(f"{c}-{self.mark}" for c in done)
        else:
            assert self.raised(body, Conflict)

    # Time and death.

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 11))
    def lapse(self, which: int) -> None:
        delivery = self.mine(which)
        self.rows(
            "update surefoot.outbox_deliveries set lease_until = clock_timestamp() - interval '1 ms'"
            " where entry_id = %s and consumer = %s and state = 'claimed'",
            delivery.entry_id,
            delivery.consumer,
        )
        kept = self.kept[self.where(delivery)]
        kept.lapsed = kept.lapsed or kept.state == "claimed"

    @rule()
    def an_hour_passes(self) -> None:
        self.rows(
            "update surefoot.outbox_deliveries set due_at = due_at - interval '1 hour'"
            " where state = 'pending' and starts_with(entry_id, %s)",
            self.mark,
        )
        for kept in self.kept.values():
            kept.due = kept.due or kept.state == "pending"

    @rule(worker=workers, dies=st.booleans())
    def die(self, worker: WorkerId, dies: bool) -> None:
        """Or live again, which no worker does: it saves the machine a third one."""
        state = "state = 'dead', ended_at = now()" if dies else "state = 'live', ended_at = null"
        self.rows(f"update surefoot.workers set {state} where worker_id = %s", worker)
        (self.dead.add if dies else self.dead.discard)(worker)

    @invariant()
    def both_say_the_same(self) -> None:
        rows = self.rows(
            "select entry_id, consumer, state, attempt, worker_id, lease_until is not null, settled_at is not null"
            " from surefoot.outbox_deliveries where starts_with(entry_id, %s)",
            self.mark,
        )
        assert len(rows) == len(self.kept)
        for entry_id, consumer, state, attempt, worker, leased, settled in rows:
            kept = self.kept[int(entry_id.rpartition("/")[2]), consumer.partition("-")[0]]
            assert (state, attempt, worker) == (kept.state, kept.attempt, kept.worker)
            assert (leased, settled) == (state == "claimed", state not in OPEN)
        taken = self.rows(
            "select entry_id, consumer, result from surefoot.inbox where starts_with(entry_id, %s)", self.mark
        )
        found = {(int(e.rpartition("/")[2]), c.partition("-")[0]): result for e, c, result in taken}
        assert found == self.inbox

    @invariant()
    def a_person_is_told_the_same(self) -> None:
        """What is not delivered or given up, and that it stands behind a dead one if it does."""
        told = self.rows(
            "select entry_id, consumer, standing from surefoot.outbox_open where starts_with(entry_id, %s)", self.mark
        )
        found = {(int(e.rpartition("/")[2]), c.partition("-")[0]): standing for e, c, standing in told}
        expected: dict[tuple[int, str], str] = {}
        heads: dict[tuple[str, str], str] = {}
        for (n, consumer), kept in sorted(self.kept.items()):
            if kept.state in ("delivered", "discarded"):
                continue
            key = self.entries[n]
            if kept.state == "dead" and consumer in PASSES:
                expected[n, consumer] = "dead"
                continue
            head = kept.state if key is None else heads.setdefault((consumer, key), kept.state)
            behind = kept.state == "pending" and head == "dead"
            expected[n, consumer] = "blocked" if behind else kept.state
        assert found == expected

    @invariant()
    def entries_of_a_key_are_delivered_in_order(self) -> None:
        """From SQL alone: nobody has ever been given what stands behind an entry that is not delivered."""
        early = self.rows(
            "select l.entry_id from surefoot.outbox_entries h join surefoot.outbox_deliveries hd using (entry_id)"
            " join surefoot.outbox_entries l on (l.tenant, l.topic, l.key) = (h.tenant, h.topic, h.key)"
            "      and l.key_seq > h.key_seq"
            " join surefoot.outbox_deliveries ld on ld.entry_id = l.entry_id and ld.consumer = hd.consumer"
            " where hd.state not in ('delivered', 'discarded') and ld.attempt > 0 and h.topic = %s"
            "   and not hd.passes_dead",  # a dead one that was passed may come again
            f"topic-{self.mark}",
        )
        assert early == []


def test_the_outbox_does_what_its_model_says(database_url: str) -> None:
    search(Outbox, database_url, examples=30)


@pytest.mark.parametrize(
    ("name", "guard", "instead"),
    [
        ("claim_due_with_skip_locked", "d.of_seq is null or", "true or"),
        ("claim_due_with_skip_locked", "d.lease_until < clock_timestamp()", "true"),
        ("claim_due_with_skip_locked", "w.worker_id = d.worker_id and w.state <> 'live'", "false"),
        ("claim_due_with_skip_locked", "and not (h.state = 'dead' and (h.passes_dead or h.consumer = 'effect'))", ""),
        ("settle_attempts", "and d.worker_id = e.worker_id and d.attempt = e.attempt", ""),
        ("redrive_if_dead", "and state = 'dead'", ""),
        ("discard_if_dead_or_pending", "and state in ('dead', 'pending')", ""),
    ],
)
def test_the_model_misses_each_guard(
    database_url: str, monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str
) -> None:
    is_missed(
        Outbox, database_url, monkeypatch, [outbox, backlog], "_OUTBOX", changed("outbox", (name, guard, instead))
    )
