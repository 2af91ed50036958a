"""The ledger against a model of it: after any calls both say the same of action, delivery, receipts and run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.model.machines import search, seldom, workers
from tests.races.scenes import ADA, LEASE_S, Scene
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    Conflict,
    Execution,
    RunState,
    Session,
    WorkerId,
    actions,
    attempts,
    desk,
    outbox,
    receipts,
)
from transactions.actions import Ticket
from transactions.desk import Outcome, Statement
from transactions.segments import Ending
from transactions.statements import load
from transactions.waits import Wait

ATTEMPTS_MAX = 5
SETTLED = ("SUCCEEDED", "FAILED", "CANCELLED")


class Ledger(RuleBasedStateMachine):
    """One run with one effect. What the model predicts is written first, what the database does is compared with it."""

    def __init__(self, scene: Scene, loop: asyncio.Runner) -> None:
        super().__init__()
        self.scene, self.loop = scene, loop
        self.execution: Execution = loop.run(scene.running())
        self.action_id = ActionId(f"{self.execution.run_id}/1/0:publish")
        self.state, self.attempt, self.run, self.segment = "PREPARED", 0, "running", 0
        self.delivery, self.holder, self.tickets = "parked", WorkerId(""), 0
        self.dead: set[WorkerId] = set()
        self.receipts: list[tuple[int, str, bool]] = []
        self.absent: set[int] = set()
        self.decided: dict[int, tuple[str, int | None]] = {}
        self.answers = 0

        async def prepare(session: Session) -> None:
            request = scene.request(self.execution, 0, gated=False, attempt_s=0.000001)
            await scene.prepare(session, self.execution, request)

        self._commit(prepare)

    def _commit(self, body: Callable[[Session], Awaitable[Any]]) -> Any:
        async def once() -> Any:
            async with self.scene.database.transaction("model", DEFAULT_TENANT) as session:
                return await body(session)

        return self.loop.run(once())

    def _settle(self, state: str, delivery: str) -> None:
        if self.state not in SETTLED:
            self.state = state
            if self.delivery in ("parked", "pending", "claimed"):
                self.delivery = delivery

    def _wake(self) -> None:
        if self.run == "waiting":
            self.run, self.segment = "queued", self.segment + 1

    def _back(self) -> None:
        self.state = "PREPARED"
        if self.run in ("cancelling", "cancelled", "failed"):
            self._settle("CANCELLED", "discarded")

    @initialize(far=st.integers(0, 4))
    def begin(self, far: int) -> None:
        """Not every sequence starts from nothing: the interesting ones are deep."""
        if far > 0:
            self.take(ADA)
        if far > 1:
            self.claim(ADA, 0)
        if far == 3:
            self.not_sent(ADA, 0)
        if far > 3:
            self.doubt(ADA, 0)

    # Intents.

    @rule(worker=workers)
    def take(self, worker: WorkerId) -> None:
        free = self.delivery in ("parked", "pending") or (self.delivery == "claimed" and self.holder in self.dead)
        taken = self._commit(lambda s: outbox.take_effect(s, self.action_id, worker_id=worker, lease_s=LEASE_S))
        if free:
            self.delivery, self.holder, self.tickets = "claimed", worker, self.tickets + 1
        assert taken == (self.tickets if free else None)

    @rule(worker=workers, late=st.integers(0, 1))
    def claim(self, worker: WorkerId, late: int) -> None:
        ticket = Ticket(self.action_id, self.tickets - late, worker)
        may = (
            self.state == "PREPARED"
            and self.attempt < ATTEMPTS_MAX
            and (self.delivery, self.holder, late) == ("claimed", worker, 0)
            and self.run in ("queued", "running", "waiting")
        )

        async def once() -> bool:
            try:
                async with self.scene.database.transaction("model", DEFAULT_TENANT) as session:
                    if await actions.claim(session, ticket, attempt=self.attempt) is None:
                        raise LookupError
                    return True
            except LookupError:
                return False

        assert self.loop.run(once()) == may
        if may:
            self.state, self.attempt = "IN_FLIGHT", self.attempt + 1

    @rule(worker=workers)
    def give_back(self, worker: WorkerId) -> None:
        self._commit(
            lambda s: outbox.give_back_effect(
                s, self.action_id, attempt=self.tickets, worker_id=worker, pause_s=0, detail="later"
            )
        )
        if (self.delivery, self.holder) == ("claimed", worker):
            self.delivery = "pending"

    @rule(worker=workers, really=seldom)
    def withdraw(self, worker: WorkerId, really: bool) -> None:
        if not really:
            return
        may = self.state == "PREPARED"
        assert self._commit(lambda s: actions.withdraw(s, self.action_id, reason="no", worker_id=worker)) == may
        if may:
            self._settle("CANCELLED", "discarded")
            self._wake()

    # Facts, of the last attempt or of an earlier one.

    @precondition(lambda self: self.attempt > 0)
    @rule(worker=workers, back=st.integers(0, 2), found=st.booleans())
    def receive(self, worker: WorkerId, back: int, found: bool) -> None:
        attempt, source = max(1, self.attempt - back), "verification" if found else "answer"
        self.answers += 1
        self._commit(
            lambda s: receipts.receive(
                s, self.action_id, attempt=attempt, source=source, result=self.answers, worker_id=worker
            )
        )
        against = (
            any(other != attempt for other, _, _ in self.receipts)
            or (not found and any(kind == "answer" for _, kind, _ in self.receipts))
            or self.state in ("FAILED", "CANCELLED")
            or (not found and attempt in self.absent)
            or self.decided.get(attempt, ("succeeded", self.answers)) != ("succeeded", self.answers)
        )
        self.receipts.append((attempt, source, against))
        self._settle("SUCCEEDED", "delivered")
        self._wake()

    @rule(worker=workers, back=st.integers(0, 1))
    def refuse(self, worker: WorkerId, back: int) -> None:
        may = self.state not in SETTLED and back == 0
        refused = self._commit(
            lambda s: attempts.refuse(
                s, self.action_id, attempt=self.attempt - back, reason="refused", worker_id=worker
            )
        )
        assert refused == may
        if may:
            self._settle("FAILED", "dead")
            self._wake()

    @rule(worker=workers, back=st.integers(0, 1))
    def doubt(self, worker: WorkerId, back: int) -> None:
        may = self.state == "IN_FLIGHT" and back == 0
        doubted = self._commit(
            lambda s: attempts.doubt(s, self.action_id, attempt=self.attempt - back, reason="?", worker_id=worker)
        )
        assert doubted == may
        if may:
            self.state = "UNKNOWN"

    @rule(worker=workers, back=st.integers(0, 1))
    def not_sent(self, worker: WorkerId, back: int) -> None:
        may = self.state == "IN_FLIGHT" and back == 0
        went_back = self._commit(
            lambda s: attempts.not_sent(s, self.action_id, attempt=self.attempt - back, reason="no", worker_id=worker)
        )
        assert went_back == may
        if may:
            self._back()

    @precondition(lambda self: self.attempt > 0)
    @rule(worker=workers, back=st.integers(0, 1))
    def verify_as_absent(self, worker: WorkerId, back: int) -> None:
        attempt = self.attempt - back
        may = self.state in ("IN_FLIGHT", "UNKNOWN") and back == 0

        async def verify(session: Session) -> bool:
            await attempts.judge(
                session, self.action_id, attempt=attempt, verdict="absent", evidence=None, worker_id=worker
            )
            return await attempts.absent(session, self.action_id, attempt=attempt, worker_id=worker)

        assert self._commit(verify) == may
        self.absent.add(attempt)
        if may:
            self._back()

    @precondition(lambda self: self.state in ("IN_FLIGHT", "UNKNOWN") or self.decided)
    @rule(outcome=st.sampled_from(("succeeded", "absent", "failed")), really=seldom)
    def decide(self, outcome: Outcome, really: bool) -> None:
        """A person, who is heard while nobody knows: never twice, and of nothing that somebody drives."""
        if not really:
            return
        driven = self.delivery == "claimed" and self.holder not in self.dead
        may = self.state == "UNKNOWN" or (self.state == "IN_FLIGHT" and not driven)
        may = may and (outcome != "absent" or self.attempt < ATTEMPTS_MAX)
        self.answers += 1
        result = self.answers if outcome == "succeeded" else None
        says = Statement(outcome, "eve", reason="looked", result=result)
        try:
            self._commit(lambda s: desk.settle(s, self.action_id, says))
        except Conflict:
            assert not may
            return
        assert may
        self.decided[self.attempt] = (outcome, result)
        if outcome == "succeeded":
            self.receipts.append((self.attempt, "person", False))
            self._settle("SUCCEEDED", "delivered")
            self._wake()
        elif outcome == "failed":
            self._settle("FAILED", "dead")
            self._wake()
        else:
            self._back()

    # The run.

    @precondition(lambda self: self.run in ("running", "cancelling"))
    @rule(fails=seldom)
    def end(self, fails: bool) -> None:
        wait = Wait("delivery", self.action_id, "call0", 0, None)
        ending = Ending(state=RunState.WAITING, turns=1, usage={}, waits=[wait])
        if fails:
            ending = Ending(state=RunState.FAILED, turns=1, usage={}, reason="failed")
        self.loop.run(self.scene.end(self.execution, ending))
        if self.run == "cancelling":
            self.run = "cancelled"
        elif not fails:
            self.run = "waiting"
            if self.state in SETTLED:
                self._wake()
        elif self.state in ("IN_FLIGHT", "UNKNOWN"):
            self.run = "held"
        else:
            self.run = "failed"
            self._settle("CANCELLED", "discarded")

    @rule(really=seldom)
    def cancel(self, really: bool) -> None:
        if not really:
            return
        try:
            self.loop.run(self.scene.cancel(self.execution.run_id))
        except Conflict:
            assert self.run == "failed"
            return
        assert self.run != "failed"
        if self.state == "PREPARED":
            assert self.run not in ("cancelling", "cancelled")
            self._settle("CANCELLED", "discarded")
        self.run = "cancelling" if self.run in ("running", "cancelling") else "cancelled"

    @rule(worker=workers, dies=st.booleans())
    def die(self, worker: WorkerId, dies: bool) -> None:
        """Or live again, which no worker does: it saves the machine a third one."""
        state = "state = 'dead', ended_at = now()" if dies else "state = 'live', ended_at = null"
        self.loop.run(self.scene.rows(f"update surefoot.workers set {state} where worker_id = %s", worker))
        (self.dead.add if dies else self.dead.discard)(worker)

    @invariant()
    def both_say_the_same(self) -> None:
        seen = self.loop.run(self.scene.seen(self.execution.run_id))
        [action] = seen["actions"]
        [delivery] = seen["deliveries"]
        assert (action["state"], action["attempt"]) == (self.state, self.attempt)
        assert (delivery["state"], delivery["attempt"]) == (self.delivery, self.tickets)
        assert (seen["state"], seen["segment"]) == (self.run, self.segment)
        said = {d["attempt"]: (d["outcome"], d["result"]) for d in seen["decisions"]}
        assert said == self.decided
        kept = [(r["attempt"], r["source"], r["contradiction"] is not None) for r in seen["receipts"]]
        assert kept == self.receipts

    def teardown(self) -> None:
        self.loop.run(self.scene.rows("update surefoot.workers set state = 'live', ended_at = null"))


def test_the_ledger_does_what_its_model_says(database_url: str) -> None:
    search(Ledger, database_url, examples=50)


@pytest.mark.parametrize(
    ("statements", "guard"),
    [
        (["claim_prepared_with_ticket", "record_attempt_if_ticket_still_held"], "and d.worker_id = :worker_id"),
        (["fail_if_attempt"], "and attempt = :attempt"),
        (["unknown_if_in_flight_attempt"], "and state = 'IN_FLIGHT'"),
        (["succeed_if_unsettled"], "and state in ('PREPARED', 'IN_FLIGHT', 'UNKNOWN')"),
    ],
)
def test_the_model_misses_each_guard(
    database_url: str, monkeypatch: pytest.MonkeyPatch, statements: Sequence[str], guard: str
) -> None:
    changed = dict(load("actions"))
    for name in statements:
        assert guard in changed[name].text
        changed[name] = text(changed[name].text.replace(guard, ""))
    for module in (actions, attempts, receipts):
        monkeypatch.setattr(module, "_ACTIONS", changed)
    with pytest.raises((AssertionError, DBAPIError)):
        search(Ledger, database_url, examples=400, phases=[Phase.generate])
