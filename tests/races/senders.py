"""Workers that send and verify one effect, each drawing what it does next from its own random numbers."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from tests.races import scenes
from tests.races.scenes import LEASE_S, Scene
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    Execution,
    Session,
    WorkerId,
    actions,
    approvals,
    attempts,
    outbox,
    receipts,
)
from transactions.actions import Ticket
from transactions.approvals import Question, Terms
from transactions.states import ActionState


class NotClaimed(Exception):
    """Rolls the claim back, as its caller does."""


class Objection(Exception):
    """Rolls the claim back too: its approval does not hold."""


@dataclass(slots=True)
class Told:
    """What the workers told the ledger and the ledger took: the facts that may never be lost."""

    claims: list[tuple[ActionId, int, WorkerId, int]] = field(default_factory=list)
    receipts: Counter[tuple[ActionId, int, str, str, str]] = field(default_factory=Counter)


@dataclass(slots=True)
class Worker:
    """Somebody who sends and verifies, drawing what it does next from its own random numbers."""

    scene: Scene
    worker_id: WorkerId
    action_id: ActionId
    execution: Execution | None
    random: random.Random
    told: Told
    ticket: int | None = None
    tickets: list[int] = field(default_factory=list)  # all it ever held: a stale one must not work
    sent: list[int] = field(default_factory=list)
    answers: int = 0

    async def work(self, acts: int) -> None:
        for _ in range(acts):
            await self.act()

    async def act(self) -> None:
        if self.ticket is None:
            await self.take()
            return
        row = await self.load()
        late: list[Callable[[], Awaitable[object]]] = [
            partial(tell, attempt) for attempt in self.sent for tell in (self.answer, self.refuse)
        ]
        if row["state"] == ActionState.PREPARED:
            nexts = [self.claim, self.claim, self.claim, self.withdraw, self.give_back, *late]
        elif ActionState(row["state"]).settled:
            nexts = [self.give_back, self.withdraw, *late]
        elif row["attempt"] in self.sent:
            attempt = row["attempt"]
            nexts = [
                partial(self.answer, attempt),
                partial(self.refuse, attempt),
                partial(self.not_sent, attempt),
                partial(self.doubt, attempt),
                partial(self.find, attempt),
                *late,
            ]
        else:
            attempt = row["attempt"]
            nexts = [
                partial(self.find, attempt),
                partial(self.absent, attempt),
                partial(self.absent, attempt),
                partial(self.doubt, attempt),
                self.give_back,
                *late,
            ]
        await self.random.choice(nexts)()

    async def load(self) -> Mapping[str, Any]:
        async with self.scene.database.transaction("effect.load", DEFAULT_TENANT) as session:
            return await actions.get(session, self.action_id)

    async def take(self) -> None:
        """The ticket, as a segment takes it or as a relay does."""
        if self.execution is not None:
            async with self.scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
                taken = await outbox.take_effect(session, self.action_id, worker_id=self.worker_id, lease_s=LEASE_S)
            self.hold(taken)
            return
        async with self.scene.database.all_tenants("relay.claim") as session:
            claimed = await outbox.claim_due(
                session,
                consumers=[outbox.EFFECT],
                agents=[scenes.AGENT],
                worker_id=self.worker_id,
                lease_s=LEASE_S,
                limit=1000,
            )
        mine = [delivery.attempt for delivery in claimed if delivery.action_id == self.action_id]
        self.hold(mine[0] if mine else None)

    def hold(self, ticket: int | None) -> None:
        self.ticket = ticket
        if ticket is not None:
            self.tickets.append(ticket)

    async def claim(self) -> None:
        row = await self.load()
        held = self.random.choice(self.tickets)
        ticket = Ticket(self.action_id, held, self.worker_id, self.execution)
        try:
            async with self.scene.database.transaction("effect.claim", DEFAULT_TENANT) as session:
                claimed = await actions.claim(session, ticket, attempt=row["attempt"])
                if claimed is None:
                    raise NotClaimed
                if row["gated"] and (why := await self._objection(session, row)) is not None:
                    raise Objection(why)
        except NotClaimed:
            self.ticket = None
            return
        except Objection:
            await self.withdraw()
            return
        self.sent.append(claimed["attempt"])
        self.told.claims.append((self.action_id, claimed["attempt"], self.worker_id, held))

    async def _objection(self, session: Session, row: Mapping[str, Any]) -> str | None:
        terms = Terms("always", ("role:manager",), people_min=1, not_requester=False, agent_version="1")
        asked = Question(
            self.action_id,
            row["run_id"],
            DEFAULT_TENANT,
            row["tool"],
            arguments=row["request"],
            binding=row["request"],
            terms=terms,
            expires=timedelta(hours=1),
        )
        objection = await approvals.objection(session, asked)
        return objection and objection.why

    async def answer(self, attempt: int) -> None:
        self.answers += 1
        await self._receive(attempt, "answer", f"{self.worker_id} {self.answers // 2}")  # now and then the same again

    async def find(self, attempt: int) -> None:
        async with self.scene.database.transaction("effect.found", DEFAULT_TENANT) as session:
            await self._judge(session, attempt, "found")
            await self._received(session, attempt, "verification", f"{self.worker_id} found")
        self.told.receipts[(self.action_id, attempt, "verification", self.worker_id, f"{self.worker_id} found")] += 1

    async def _receive(self, attempt: int, source: Literal["answer", "verification"], result: str) -> None:
        async with self.scene.database.transaction("effect.answered", DEFAULT_TENANT) as session:
            await self._received(session, attempt, source, result)
        self.told.receipts[(self.action_id, attempt, source, self.worker_id, result)] += 1

    async def _received(
        self, session: Any, attempt: int, source: Literal["answer", "verification"], result: str
    ) -> None:
        await receipts.receive(
            session, self.action_id, attempt=attempt, source=source, result=result, worker_id=self.worker_id
        )

    async def _judge(self, session: Any, attempt: int, verdict: attempts.Verdict) -> None:
        await attempts.judge(
            session, self.action_id, attempt=attempt, verdict=verdict, evidence="seen", worker_id=self.worker_id
        )

    async def absent(self, attempt: int) -> None:
        async with self.scene.database.transaction("effect.absent", DEFAULT_TENANT) as session:
            await self._judge(session, attempt, "absent")
            await attempts.absent(session, self.action_id, attempt=attempt, worker_id=self.worker_id)

    async def refuse(self, attempt: int) -> None:
        async with self.scene.database.transaction("effect.refused", DEFAULT_TENANT) as session:
            await attempts.refuse(session, self.action_id, attempt=attempt, reason="refused", worker_id=self.worker_id)

    async def not_sent(self, attempt: int) -> None:
        async with self.scene.database.transaction("effect.not_sent", DEFAULT_TENANT) as session:
            await attempts.not_sent(
                session, self.action_id, attempt=attempt, reason="not sent", worker_id=self.worker_id
            )

    async def doubt(self, attempt: int) -> None:
        async with self.scene.database.transaction("effect.unknown", DEFAULT_TENANT) as session:
            await attempts.doubt(session, self.action_id, attempt=attempt, reason="no answer", worker_id=self.worker_id)

    async def withdraw(self) -> None:
        async with self.scene.database.transaction("effect.withdraw", DEFAULT_TENANT) as session:
            await actions.withdraw(session, self.action_id, reason="withdrawn", worker_id=self.worker_id)

    async def give_back(self) -> None:
        assert self.ticket is not None
        async with self.scene.database.transaction("effect.back_off", DEFAULT_TENANT) as session:
            await outbox.give_back_effect(
                session, self.action_id, attempt=self.ticket, worker_id=self.worker_id, pause_s=0.0, detail="later"
            )
        self.ticket = None
