"""The driver of effects on real rows, against another side that is scripted."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from steps import (
    Absent,
    Action,
    Found,
    Tools,
    Unsure,
    durable,
)
from steps.bench import Bench
from steps.effects import Effects
from tests.races.scenes import ADA, AGENT, BOB, LEASE_S, Scene
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    Database,
    RunState,
    Wakeups,
    desk,
    outbox,
)
from transactions.actions import EffectLimits, Ticket
from transactions.desk import Statement
from transactions.segments import Ending
from transactions.waits import Wait

REQUEST = httpx.Request("POST", "http://desk.example/tickets")


def status(code: int, body: str = "") -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError(f"{code}", request=REQUEST, response=httpx.Response(code, request=REQUEST, text=body))


@dataclass(slots=True)
class Other:
    """The other side: what it answers to each send and to each question, in turn; the last one for ever."""

    answers: Sequence[Any]
    verdicts: Sequence[Any] = ()
    sent: list[int] = field(default_factory=list[int])
    asked: int = 0

    def send(self, attempt: int) -> Any:
        self.sent.append(attempt)
        answer = self.answers[min(len(self.sent), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self) -> Any:
        self.asked += 1
        verdict = self.verdicts[min(self.asked, len(self.verdicts)) - 1]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


@dataclass(slots=True)
class Driven:
    """One prepared effect, whose run waits for it, and the worker that drives it."""

    scene: Scene
    action_id: ActionId
    run_id: str
    effects: Effects
    worker: str = ADA

    async def drive(self) -> None:
        """What the relay does when the delivery is due."""
        async with self.scene.database.all_tenants("relay.claim") as session:
            (delivery,) = await outbox.claim_due(
                session, consumers=["effect"], agents=[AGENT], worker_id=BOB, lease_s=LEASE_S, limit=1
            )
        await self.effects.drive(Ticket(self.action_id, delivery.attempt, BOB), DEFAULT_TENANT)

    async def due(self) -> None:
        """Time passes."""
        await self.scene.rows(
            "update surefoot.outbox_deliveries set due_at = clock_timestamp() where state = 'pending'"
        )

    async def says(self, outcome: Any, **said: Any) -> None:
        async with self.scene.database.transaction("action.settle", DEFAULT_TENANT) as session:
            await desk.settle(session, self.action_id, Statement(outcome, "eve", **said))

    async def until_it_can_be_said(self, outcome: str) -> None:
        """Until the attempt is over."""
        while outcome not in (await self.look())["can"]:
            continue

    async def state(self) -> tuple[Any, ...]:
        """State and class of failure of the action, state of its delivery, state of its run."""
        (row,) = await self.scene.rows(
            "select a.state, a.failure, d.state, r.state from surefoot.actions a join surefoot.runs r using (run_id) "
            "join surefoot.outbox_deliveries d on d.entry_id = a.action_id"
        )
        return row

    async def look(self) -> Any:
        """What the desk shows of it."""
        async with self.scene.database.transaction("read", DEFAULT_TENANT) as session:
            return (await desk.file(session, self.action_id)).unknown


@asynccontextmanager
async def effects_on(scene: Scene, database_url: str) -> AsyncGenerator[Any]:
    """Makes the effect of a case, and what drives it."""
    database = Database(database_url)

    async def make(other: Other, *, safety: Any, **limits: Any) -> Driven:
        tools = Tools[Other](id="case")

        async def asked(action: Action[Other], position: int) -> Found[int | list[int]] | Absent | Unsure:
            return action.deps.ask()

        async def publish(action: Action[Other], position: int) -> int | list[int]:
            return action.deps.send(action.attempt)

        match safety:
            case "verify":
                tools.effect(verify=asked)(publish)
            case "idempotent":
                tools.effect(idempotent=True)(publish)
            case _:
                tools.effect(at_most_once=True)(publish)
        agent = durable(
            Agent(TestModel(), name=AGENT, deps_type=Other, toolsets=[tools]),
            version="1",
            deps=lambda run: other,
            prompt=str,
        )

        def fenced(why: str) -> None:
            raise AssertionError(why)

        wakeups = Wakeups(database_url)
        bench = Bench(database, {AGENT: agent}, BOB, wakeups, lambda: None, fenced)
        execution = await scene.running()
        request = replace(
            scene.request(execution, 0, gated=False),
            safety=safety,
            limits=EffectLimits(**{"attempt_s": 0.05, "attempts_max": 5, **limits}),
        )
        async with scene.database.transaction("calls", execution.tenant) as session:
            await scene.prepare(session, execution, request)
            await outbox.due_now(session, request.action_id, detail="its turn")
        wait = Wait("delivery", request.action_id, request.call_id, 0, None)
        await scene.end(execution, Ending(state=RunState.WAITING, turns=1, usage={}, waits=[wait]))
        return Driven(scene, request.action_id, execution.run_id, Effects(bench))

    yield make
    await database.close()
