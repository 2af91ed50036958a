"""Approvals against a model: decisions, expiry, bindings, calls behind a refused one, and claims that need them."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.model.machines import Model, changed, is_missed, search, seldom
from tests.races import invariants
from tests.races.scenes import ADA, LEASE_S, Scene, question
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ApprovalId,
    Conflict,
    Event,
    Execution,
    Forbidden,
    Principal,
    RunState,
    Session,
    actions,
    approvals,
    deciding,
    number,
    outbox,
    principals,
    runs,
    segments,
)
from transactions.actions import Ticket
from transactions.approvals import Question
from transactions.deciding import Said
from transactions.segments import Ending
from transactions.waits import Wait

CALLS_MAX = 3
MANAGER = Principal(DEFAULT_TENANT, "mia", frozenset({"approver", "manager"}), authenticated=True)
CLERK = Principal(DEFAULT_TENANT, "cleo", frozenset({"approver", "clerk"}), authenticated=True)


@dataclass
class Call:
    """`now`: which version of its binding there is; `bound`: which one its approval is for."""

    first: ActionId
    position: int
    gated: bool
    action_id: ActionId
    action: str = "PREPARED"
    approval: str = ""
    over: bool = False
    wait: str = ""  # "", "open", or its outcome
    now: int = 0
    bound: int = 0
    asked: int = 1
    revision: int = 1
    edited: Any = None

    @property
    def approval_id(self) -> ApprovalId:
        return ApprovalId(self.action_id if self.asked == 1 else f"{self.action_id}~a{self.asked}")


class Objected(Exception):
    """The claim is rolled back."""


class Approvals(Model):
    """One run whose first segment asks for some calls, and whoever decides about them."""

    def __init__(self, scene: Scene, loop: asyncio.Runner) -> None:
        super().__init__(scene, loop)
        self.execution: Execution = loop.run(scene.running())
        self.run, self.segment = "running", 0
        self.calls: list[Call] = []
        self.given_up: set[ActionId] = set()
        self.has_right = True
        for who in (MANAGER, CLERK):
            loop.run(scene.administrate(lambda s, who=who: self._set_up(s, who)))

    async def _set_up(self, session: Session, who: Principal) -> None:
        await principals.put(session, DEFAULT_TENANT, who.name, roles=sorted(who.roles), by="root")
        await principals.enable(session, DEFAULT_TENANT, who.name, by="root")

    def question(self, call: Call, edited: int | None = None) -> Question:
        """What a manager is asked about the call, as it is now, or as it is edited."""
        request = self.scene.request(self.execution, call.position, gated=True)
        arguments = call.edited or request.arguments
        if edited is not None:
            arguments = {"position": call.position, "edited": edited}
        binding = arguments if not call.now else {**arguments, "now": call.now}
        return replace(
            question(self.execution, request), action_id=call.action_id, arguments=arguments, binding=binding
        )

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
        then=st.sampled_from(("", "late", "another", "leaves")),
        waits=st.booleans(),
    )
    def set_out(self, gated: list[bool], agrees: bool, then: str, waits: bool) -> None:
        """The interesting sequences are deep."""
        for each in gated:
            self.ask(each, dies=False)
        if agrees and self.asks():
            self.decide(0, approve=True, right=True, dies=False)
            if then == "another":
                self.another_version_comes(0)
            elif then == "leaves":
                self.revoke_or_restore(dies=False)
            elif then == "late":
                self.time_is_over(0, really=True)
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
            self.calls.append(
                Call(wait.action_id, position, gated, wait.action_id, approval="pending" if gated else "")
            )

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
        said = Said(MANAGER if right else CLERK, "approve" if approve else "reject")
        if not self.may_decide(call, said):
            return
        self.commit(lambda s: deciding.decide(s, call.approval_id, said), dies=dies)
        if dies:
            return
        call.approval = "approved" if approve else "rejected"
        if approve:
            self.agreed(call)
        else:
            self.refused(call)

    @precondition(asks)
    @rule(which=st.integers(0, 2), dies=seldom)
    def edit(self, which: int, dies: bool) -> None:
        """Approve something else instead, or still, while it is not sent: bound and approved in one commit."""
        call = self.pick(which)
        changed = self.question(call, edited=call.revision)
        said = Said(MANAGER, "approve", changed=changed)
        if not self.may_decide(call, said):
            return
        self.commit(lambda s: deciding.decide(s, call.approval_id, said), dies=dies)
        if dies:
            return
        self.given_up.add(call.action_id)
        call.revision += 1
        call.action_id = ActionId(f"{call.first}~{call.revision}")
        call.asked, call.edited, call.bound = 1, changed.arguments, call.now
        call.approval = "approved"
        self.agreed(call)

    def may_decide(self, call: Call, said: Said) -> bool:
        """Whether the database has to take it; if not, it has to say no."""

        async def body(session: Session) -> Any:
            return await deciding.decide(session, call.approval_id, said)

        if said.who is CLERK or not self.has_right:
            assert self.raised(body, Forbidden)
            return False
        stands = ("pending",) if said.changed is None else ("pending", "approved")
        late = call.over or call.action != "PREPARED" or self.run in ("cancelling", "cancelled")
        if late or call.approval not in stands:
            assert self.raised(body, Conflict)
            return False
        return True

    def agreed(self, call: Call) -> None:
        if call.wait == "open":
            call.wait = "go"
            self.wake()

    @rule(dies=seldom)
    def revoke_or_restore(self, dies: bool) -> None:
        """The manager loses the right, or has it again."""
        change = principals.disable if self.has_right else principals.enable
        self.loop.run(self.scene.administrate(lambda s: change(s, DEFAULT_TENANT, MANAGER.name, by="root"), dies=dies))
        self.has_right = self.has_right == dies

    @precondition(asks)
    @rule(which=st.integers(0, 2))
    def another_version_comes(self, which: int) -> None:
        """What the call would now do is something else than it was."""
        self.pick(which).now += 1

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
            self.loop.run(self.scene.overdue(call.approval_id))
            call.over = True

    @precondition(asks)
    @rule(which=st.integers(0, 2), dies=seldom)
    def expire(self, which: int, dies: bool) -> None:
        call = self.pick(which)
        may = call.approval == "pending" and call.over
        assert self.commit(lambda s: deciding.expire(s, call.approval_id), dies=dies) == may
        if may and not dies:
            call.approval = "expired"
            self.refused(call)

    # What a worker does.

    @precondition(asks)
    @rule(which=st.integers(0, 2), dies=seldom)
    def claim(self, which: int, dies: bool) -> None:
        """Taken, claimed and checked in one transaction; what has changed since it was approved is asked for anew."""
        call = self.pick(which)
        holds = call.approval == "approved" and not call.over and call.bound == call.now and self.has_right
        if call.action == "PREPARED" and holds:
            self.commit(lambda s: self._claim(s, call), dies=dies)
            if not dies:
                call.action = "IN_FLIGHT"
            return
        assert self.raised(lambda s: self._claim(s, call), Objected)
        if call.action == "PREPARED" and call.approval == "approved":
            self.commit(lambda s: self._ask_anew(s, call), dies=dies)
            if not dies:
                self.asked_again(call)

    def asked_again(self, call: Call) -> None:
        call.asked += 1
        call.approval, call.over, call.bound = "pending", False, call.now

    async def _claim(self, session: Session, call: Call) -> None:
        ticket = await outbox.take_effect(session, call.action_id, worker_id=ADA, lease_s=LEASE_S)
        if ticket is None or await actions.claim(session, Ticket(call.action_id, ticket, ADA), attempt=0) is None:
            raise Objected
        if await approvals.objection(session, self.question(call)) is not None:
            raise Objected

    async def _ask_anew(self, session: Session, call: Call) -> None:
        assert await actions.still(session, call.action_id, "PREPARED")
        objection = await approvals.objection(session, self.question(call))
        assert objection is not None
        assert not objection.final
        await approvals.ask(session, self.question(call), objection)
        await number(session, self.execution.run_id, Event("approval.requested"))

    @invariant()
    def both_say_the_same(self) -> None:
        seen = self.loop.run(self.scene.seen(self.execution.run_id))
        invariants.consistent(seen)
        assert (seen["state"], seen["segment"]) == (self.run, self.segment)
        states = {row["action_id"]: row["state"] for row in seen["actions"]}
        given_up = dict.fromkeys(self.given_up, "CANCELLED")
        assert states == {call.action_id: call.action for call in self.calls} | given_up
        decided = {row["approval_id"]: row["state"] for row in seen["approvals"]}
        assert {call.approval_id: call.approval for call in self.calls if call.gated}.items() <= decided.items()
        rest = decided.keys() - {call.approval_id for call in self.calls}
        assert all(decided[approval_id] == "superseded" for approval_id in rest)
        waited = {row["wait_id"]: row["outcome"] or "open" for row in seen["waits"]}
        assert waited == {call.first: call.wait for call in self.calls if call.wait}
        meant = {row["action_id"] for row in seen["waits"] if row["state"] == "open"}
        assert meant == {call.action_id for call in self.calls if call.wait == "open"}
        sent = {row["action_id"] for row in seen["attempts"]}
        assert sent == {call.action_id for call in self.calls if call.action == "IN_FLIGHT"}


def test_approvals_do_what_their_model_says(database_url: str) -> None:
    search(Approvals, database_url, examples=30)


@pytest.mark.parametrize(
    ("name", "guard", "instead"),
    [
        ("expire_if_pending_and_over", "and expires_at <= clock_timestamp()", ""),
        ("last_of_action_for_update", "a.expires_at <= clock_timestamp()", "false"),
        ("without_right", "p.disabled_at is null and", ""),
    ],
)
def test_the_model_misses_each_guard(
    database_url: str, monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str
) -> None:
    spoilt = changed("approvals", (name, guard, instead))
    is_missed(Approvals, database_url, monkeypatch, [approvals, deciding], "_APPROVALS", spoilt)


def test_the_model_misses_the_check_when_it_is_done(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was asked once is not asked again: what is done is not what was approved."""

    async def nothing(*_: object) -> None:
        return None

    is_missed(Approvals, database_url, monkeypatch, [approvals], "objection", nothing)


def test_the_model_misses_the_binding(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_missed(Approvals, database_url, monkeypatch, [approvals], "_difference", lambda *_: {})


def test_the_model_misses_that_a_cancelled_action_voids_its_approval(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt = changed("approvals", ("void_of_actions", "'pending', 'approved'", "'pending'"))
    is_missed(Approvals, database_url, monkeypatch, [actions], "_APPROVALS", spoilt)
