"""Approvals against a model: decisions, expiry, bindings, calls behind a refused one, and claims that need them."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.model.machines import Model, changed, is_missed, search, seldom
from tests.races import invariants
from tests.races.scenes import ADA, LEASE_S, Scene, person
from transactions import (
    ActionId,
    ApprovalId,
    Conflict,
    Execution,
    Forbidden,
    RunState,
    Session,
    actions,
    approvals,
    outbox,
    runs,
    segments,
)
from transactions.actions import Ticket
from transactions.segments import Ending
from transactions.waits import Wait

CALLS_MAX = 3
CARL = """
insert into surefoot.principals (tenant, name, roles, changed_by)
values ('default', 'carl', '{approver, clerk}', 'test') on conflict do nothing"""


@dataclass
class Call:
    action_id: ActionId
    gated: bool
    action: str = "PREPARED"
    approval: str = ""
    over: bool = False
    wait: str = ""  # "", "open", or its outcome


class Objection(Exception):
    """The claim is rolled back."""


class Approvals(Model):
    """One run whose first segment asks for some calls, and whoever decides about them."""

    def __init__(self, scene: Scene, loop: asyncio.Runner) -> None:
        super().__init__(scene, loop)
        self.execution: Execution = loop.run(scene.running())
        self.rows(CARL)
        self.ada_has(("approver", "manager"))
        self.ada_is_disabled(False)
        self.run, self.segment = "running", 0
        self.calls: list[Call] = []

    def ada_counts(self) -> bool:
        return self.ada_may and self.ada_is_there

    def pick(self, which: int) -> Call:
        gated = [call for call in self.calls if call.gated]
        return gated[which % len(gated)]

    def asks(self) -> bool:
        return any(call.gated for call in self.calls)

    def wake(self) -> None:
        if self.run == "waiting" and not any(call.wait == "open" for call in self.calls):
            self.run, self.segment = "queued", 1

    def cancelled(self, call: Call) -> None:
        if call.action == "PREPARED":
            call.action = "CANCELLED"
            if call.approval in ("pending", "approved"):
                call.approval = "void"

    def refused(self, call: Call) -> None:
        """The call and all that the model asked for behind it."""
        behind = self.calls[self.calls.index(call) + 1 :]
        if call.wait == "open":
            call.wait = "denied"
        for later in behind:
            if later.wait and self.segment == 0:
                later.wait = "denied"
        for each in [call, *behind]:
            self.cancelled(each)
        self.wake()

    @initialize(
        gated=st.lists(st.sampled_from((True, True, False)), min_size=1, max_size=CALLS_MAX),
        agrees=st.booleans(),
        waits=st.booleans(),
    )
    def set_out(self, gated: list[bool], agrees: bool, waits: bool) -> None:
        """The interesting sequences are deep."""
        for each in gated:
            self.ask(each, dies=False)
        if agrees and self.asks():
            self.decide(0, approve=True, right=True, dies=False)
        if waits:
            self.end(dies=False)

    # What the segment does.

    @precondition(lambda self: self.run == "running" and len(self.calls) < CALLS_MAX)
    @rule(gated=st.booleans(), dies=seldom)
    def ask(self, gated: bool, dies: bool) -> None:
        position = len(self.calls)
        wait = self.commit(
            lambda s: self.scene.call(s, self.execution, position, "approval" if gated else "follows"), dies=dies
        )
        assert wait is not None
        if not dies:
            self.calls.append(Call(wait.action_id, gated, approval="pending" if gated else ""))

    @precondition(lambda self: self.run in ("running", "cancelling"))
    @rule(dies=seldom)
    def end(self, dies: bool) -> None:
        asked: list[Wait] = [
            self.scene.wait(self.execution, position, "approval" if call.gated else "follows")
            for position, call in enumerate(self.calls)
        ]
        ending = Ending(state=RunState.WAITING, turns=1, usage={}, waits=asked)
        self.commit(lambda s: segments.end(s, self.execution, ending), dies=dies)
        if dies:
            return
        if self.run == "cancelling":
            self.run = "cancelled"
            return
        outcomes = {"": "go", "pending": "open", "approved": "go"}
        for call in self.calls:
            call.wait = outcomes.get(call.approval, "denied")
        first = next((n for n, call in enumerate(self.calls) if call.wait == "denied"), None)
        for call in self.calls[first + 1 :] if first is not None else ():
            call.wait = "denied"
            self.cancelled(call)
        self.run = "waiting"
        self.wake()

    # What people do.

    @precondition(asks)
    @rule(which=st.integers(0, 2), approve=st.booleans(), right=st.sampled_from((True, True, True, False)), dies=seldom)
    def decide(self, which: int, approve: bool, right: bool, dies: bool) -> None:
        call = self.pick(which)

        async def body(session: Session) -> Any:
            return await approvals.decide(
                session,
                ApprovalId(call.action_id),
                who=person("ada" if right else "carl"),
                decision="approve" if approve else "reject",
                reason=None,
            )

        if not (right and self.ada_counts()):
            assert self.raised(body, Forbidden)
            return
        if call.approval != "pending" or call.over or self.run in ("cancelling", "cancelled"):
            assert self.raised(body, Conflict)
            return
        self.commit(body, dies=dies)
        if dies:
            return
        call.approval = "approved" if approve else "rejected"
        if not approve:
            self.refused(call)
        elif call.wait == "open":
            call.wait = "go"
            self.wake()

    @rule(really=seldom, dies=seldom)
    def cancel(self, really: bool, dies: bool) -> None:
        if not really:
            return

        async def body(session: Session) -> None:
            await runs.cancel(session, self.execution.run_id, by="ada", reason="asked for")

        self.commit(body, dies=dies)
        if not dies:
            self.run = "cancelling" if self.run in ("running", "cancelling") else "cancelled"
            for call in self.calls:
                self.cancelled(call)
                if call.wait == "open":
                    call.wait = "denied"

    # Time.

    @precondition(asks)
    @rule(which=st.integers(0, 2), really=st.booleans())
    def time_is_over(self, which: int, really: bool) -> None:
        call = self.pick(which)
        if really:
            self.loop.run(self.scene.overdue(call.action_id))
            call.over = True

    @precondition(asks)
    @rule(which=st.integers(0, 2), dies=seldom)
    def expire(self, which: int, dies: bool) -> None:
        call = self.pick(which)
        may = call.approval == "pending" and call.over
        assert self.commit(lambda s: approvals.expire(s, ApprovalId(call.action_id)), dies=dies) == may
        if may and not dies:
            call.approval = "expired"
            self.refused(call)

    # What an admin does.

    @rule(roles=st.sampled_from((("approver", "manager"), ("approver", "manager"), ("approver",), ("manager",))))
    def ada_has(self, roles: tuple[str, ...]) -> None:
        self.rows("update surefoot.principals set roles = %s where name = 'ada'", list(roles))
        self.ada_may = len(roles) == 2

    @rule(disabled=seldom)
    def ada_is_disabled(self, disabled: bool) -> None:
        self.rows("update surefoot.principals set disabled_at = %s where name = 'ada'", "now" if disabled else None)
        self.ada_is_there = not disabled

    # What the relay does.

    @precondition(asks)
    @rule(which=st.integers(0, 2), other=seldom, dies=seldom)
    def claim(self, which: int, other: bool, dies: bool) -> None:
        """Taken, checked and claimed in one transaction; `other`: it would now do something else than was approved."""
        call = self.pick(which)
        may = call.action == "PREPARED" and call.approval == "approved" and not call.over and not other
        may = may and self.ada_counts()
        if not may:
            assert self.raised(lambda s: self._claim(s, call, other), Objection)
            return
        self.commit(lambda s: self._claim(s, call, other), dies=dies)
        if not dies:
            call.action = "IN_FLIGHT"

    async def _claim(self, session: Session, call: Call, other: bool) -> None:
        ticket = await outbox.take_effect(session, call.action_id, worker_id=ADA, lease_s=LEASE_S)
        if ticket is None:
            raise Objection
        asked = {"position": self.calls.index(call)}
        binding = {"position": "another"} if other else asked
        why = await approvals.objection(session, call.action_id, tool="publish", arguments=asked, binding=binding)
        if why is not None or await actions.claim(session, Ticket(call.action_id, ticket, ADA), attempt=0) is None:
            raise Objection

    @precondition(asks)
    @rule(which=st.integers(0, 2), dies=seldom)
    def withdraw(self, which: int, dies: bool) -> None:
        """What a worker does with an approval that was given and does not hold any more."""
        call = self.pick(which)
        if call.approval != "approved" or not call.over:
            return
        may = call.action == "PREPARED"
        withdrawn = self.commit(
            lambda s: actions.withdraw(s, call.action_id, reason="expired", worker_id=ADA), dies=dies
        )
        assert withdrawn == may
        if may and not dies:
            self.cancelled(call)
            self.wake()

    @invariant()
    def both_say_the_same(self) -> None:
        seen = self.loop.run(self.scene.seen(self.execution.run_id))
        invariants.consistent(seen)
        assert (seen["state"], seen["segment"]) == (self.run, self.segment)
        assert [row["state"] for row in seen["actions"]] == [call.action for call in self.calls]
        decided = {row["approval_id"]: row["state"] for row in seen["approvals"]}
        assert decided == {call.action_id: call.approval for call in self.calls if call.gated}
        waited = {row["action_id"]: row["outcome"] or "open" for row in seen["waits"]}
        assert waited == {call.action_id: call.wait for call in self.calls if call.wait}
        sent = {row["action_id"] for row in seen["attempts"]}
        assert sent == {call.action_id for call in self.calls if call.action == "IN_FLIGHT"}


def test_approvals_do_what_their_model_says(database_url: str) -> None:
    search(Approvals, database_url, examples=30)


@pytest.mark.parametrize(
    ("name", "guard", "instead"),
    [
        ("decide_if_pending", "and state = 'pending'", ""),
        ("decide_if_pending", "and expires_at > clock_timestamp()", ""),
        ("expire_if_pending_and_over", "and expires_at <= clock_timestamp()", ""),
        ("of_action_for_update", "a.expires_at <= clock_timestamp()", "false"),
    ],
)
def test_the_model_misses_each_guard(
    database_url: str, monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str
) -> None:
    spoilt = changed("approvals", (name, guard, instead))
    is_missed(Approvals, database_url, monkeypatch, [approvals], "_APPROVALS", spoilt)


def test_the_model_misses_the_binding(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_missed(Approvals, database_url, monkeypatch, [approvals], "binding_hash", lambda *_: "the same")


def test_the_model_misses_that_who_approved_it_may_not_any_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def may(*_: object) -> bool:
        return True

    is_missed(Approvals, database_url, monkeypatch, [approvals], "_may_still", may)


def test_the_model_misses_that_a_cancelled_action_voids_its_approval(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt = changed("approvals", ("void_of_actions", "'pending', 'approved'", "'pending'"))
    is_missed(Approvals, database_url, monkeypatch, [actions], "_APPROVALS", spoilt)
