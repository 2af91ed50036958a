"""Runs in a state that a test wants, made by the product's own functions, and what may happen to them."""

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import psycopg
from sqlalchemy import text

from tests.races.interleave import Monitor, Stage, SteppedDatabase
from transactions import (
    API,
    DEFAULT_TENANT,
    ActionId,
    ApprovalId,
    Execution,
    Limits,
    Principal,
    RunId,
    RunState,
    Tenant,
    WorkerId,
    actions,
    admitting,
    approvals,
    attempts,
    deciding,
    outbox,
    principals,
    receipts,
    runs,
    segments,
    versions,
    waits,
    workers,
)
from transactions.actions import EffectLimits, Request, Ticket
from transactions.approvals import Question, Terms
from transactions.deciding import Decision, Said
from transactions.readers import Reader, Serving
from transactions.segments import Begun, Ending
from transactions.versions import Serves
from transactions.waits import Wait

AGENT = "report"
VERSION = "report=1"
LEASE_S = 3600.0
READER = Reader("1", 25, 1, frozenset({1}), frozenset(), lambda state, record: record, frozenset({"publish effect"}))
SERVING = Serving(VERSION, {AGENT: READER})
MANAGER = ("approver", "manager")
ADA, BOB, EVE = WorkerId("ada"), WorkerId("bob"), WorkerId("eve")
Kind = Literal["approval", "delivery", "verification", "follows"]

_AUDIT = Path(__file__).with_name("audit.sql").read_text()
_SEEN = Path(__file__).with_name("seen.sql").read_text()
_DEQUEUE = text(
    "update dbos.workflow_status set status = 'PENDING', executor_id = :worker_id, application_version = :version"
    " where workflow_uuid = :id and status = 'ENQUEUED' returning workflow_uuid"
)
_HAND_OVER = text(
    "update dbos.workflow_status set executor_id = :worker_id where workflow_uuid = :id and status = 'PENDING'"
)
_LOSE = text("update dbos.workflow_status set status = 'ERROR' where workflow_uuid = :id and status = 'PENDING'")
_LONG_AGO = text(
    "update surefoot.segments set created_at = created_at - interval '1 minute' where run_id = :run_id and n = :n"
)
_OVERDUE = text(
    "update surefoot.approvals set expires_at = clock_timestamp() - interval '1 ms' where approval_id = :approval_id"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run whose segment ended, or is about to: what it executes as, and the calls it waits for."""

    run_id: RunId
    execution: Execution
    waits: Sequence[Wait]

    def ending(self) -> Ending:
        return Ending(state=RunState.WAITING, turns=1, usage={}, waits=self.waits)

    def action(self, position: int) -> ActionId:
        return ActionId(f"{self.run_id}/1/{position}:publish")


@dataclass(slots=True)
class Scene:
    """One database with three live workers, as they have it, as the administration has it (`people`) and as its owner
    sees it, and a stage for each interleaving."""

    database: SteppedDatabase
    people: SteppedDatabase
    admin: psycopg.AsyncConnection[Any]
    monitor: Monitor
    originals: dict[tuple[Kind, ...], Waiting] = field(default_factory=dict)

    def stage(self, seed: int) -> Stage:
        return Stage(self.monitor, seed)

    async def rows(self, query: str, *parameters: object) -> list[Any]:
        cursor = await self.admin.execute(query.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []

    async def forced(self, query: str, *parameters: object) -> list[Any]:
        """The same, of a statement that breaks what the triggers of the database keep."""
        await self.admin.execute("set session_replication_role = replica")
        try:
            return await self.rows(query, *parameters)
        finally:
            await self.admin.execute("set session_replication_role = origin")

    # Making.

    async def start(self, tenant: Tenant = DEFAULT_TENANT) -> RunId:
        if tenant != DEFAULT_TENANT:
            await self.rows("insert into surefoot.tenants (tenant) values (%s) on conflict do nothing", tenant)
        async with self.database.transaction("start", tenant) as session:
            return await runs.start(session, agent=AGENT, input={}, key=None, tenant=tenant, principal="test")

    async def dequeue(self, run_id: RunId, n: int, worker_id: WorkerId) -> None:
        """What the engine does when a worker takes a segment from the queue."""
        async with self.database.all_tenants("dequeue") as session:
            await session.execute(_DEQUEUE, {"id": f"{run_id}:{n}", "worker_id": worker_id, "version": VERSION})

    async def hand_over(self, run_id: RunId, n: int, worker_id: WorkerId) -> None:
        """What recovery by the engine comes to: another executor has the segment."""
        async with self.database.all_tenants("hand over") as session:
            await session.execute(_HAND_OVER, {"id": f"{run_id}:{n}", "worker_id": worker_id})

    async def overdue(self, approval_id: str) -> None:
        """Time passes."""
        async with self.database.all_tenants("time") as session:
            await session.execute(_OVERDUE, {"approval_id": approval_id})

    async def begin(self, run_id: RunId, n: int, worker_id: WorkerId) -> Begun | None:
        async with self.database.all_tenants("segment.begin") as session:
            return await segments.begin(
                session,
                run_id=run_id,
                n=n,
                worker_id=worker_id,
                serving=SERVING,
                stalls_max=5,
            )

    async def running(self, tenant: Tenant = DEFAULT_TENANT, worker_id: WorkerId = ADA) -> Execution:
        """A run whose segment 0 has begun."""
        run_id = await self.start(tenant)
        await self.dequeue(run_id, 0, worker_id)
        begun = await self.begin(run_id, 0, worker_id)
        assert begun is not None
        return begun.execution

    async def call(self, session: Any, execution: Execution, position: int, kind: Kind) -> Wait:
        """Prepare one call of turn 1, as a tool does, up to where it waits."""
        request = self.request(execution, position, gated=kind == "approval")
        await self.prepare(session, execution, request)
        if kind in ("delivery", "verification"):
            attempt = await outbox.take_effect(
                session, request.action_id, worker_id=execution.worker_id, lease_s=LEASE_S
            )
            assert attempt is not None
            ticket = Ticket(request.action_id, attempt, execution.worker_id, execution)
            assert await actions.claim(session, ticket, attempt=0) is not None
        if kind == "verification":
            await attempts.doubt(
                session, request.action_id, attempt=1, reason="no answer", worker_id=execution.worker_id
            )
        return self.wait(execution, position, kind)

    async def unknown(
        self, *, doubted: bool = True, tenant: Tenant = DEFAULT_TENANT, **limits: Any
    ) -> tuple[Execution, ActionId, Ticket]:
        """A run that waits for an effect that was sent and not answered; the ticket is of a relay that still holds it.

        limits: of the request, which otherwise is over at once.
        """
        execution = await self.running(tenant)
        request = self.request(execution, 0, gated=False, attempt_s=0.0001)
        request = replace(request, limits=replace(request.limits, **limits))
        async with self.database.transaction("calls", execution.tenant) as session:
            await self.prepare(session, execution, request)
            taken = await outbox.take_effect(session, request.action_id, worker_id=ADA, lease_s=LEASE_S)
            assert taken is not None
            ticket = Ticket(request.action_id, taken, ADA, execution)
            assert await actions.claim(session, ticket, attempt=0) is not None
            if doubted:
                await attempts.doubt(session, request.action_id, attempt=1, reason="no answer", worker_id=ADA)
        wait = Wait("verification", request.action_id, request.call_id, 0, None)
        await self.end(execution, Ending(state=RunState.WAITING, turns=1, usage={}, waits=[wait]))
        return execution, request.action_id, ticket

    def wait(self, execution: Execution, position: int, kind: Kind) -> Wait:
        request = self.request(execution, position, gated=kind == "approval")
        return Wait(kind, request.action_id, request.call_id, position, "go" if kind == "follows" else None)

    @staticmethod
    def request(execution: Execution, position: int, *, gated: bool, attempt_s: float = 30.0) -> Request:
        return Request(
            action_id=ActionId(f"{execution.run_id}/1/{position}:publish"),
            turn=1,
            position=position,
            call_id=f"call{position}",
            agent=AGENT,
            tool="publish",
            kind="effect",
            safety="verify",
            arguments={"position": position},
            gated=gated,
            limits=EffectLimits(attempt_s=attempt_s, attempts_max=5),
        )

    @staticmethod
    async def prepare(session: Any, execution: Execution, request: Request) -> None:
        await actions.prepare(session, execution, request)
        run_id, tenant = execution.run_id, execution.tenant
        await outbox.put_effect(session, request.action_id, tenant=tenant, run_id=run_id, parked=True)
        if request.gated:
            await approvals.ask(session, question(execution, request))

    async def about_to_wait(self, kinds: Sequence[Kind], tenant: Tenant = DEFAULT_TENANT) -> Waiting:
        execution = await self.running(tenant)
        async with self.database.transaction("calls", execution.tenant) as session:
            calls = [await self.call(session, execution, position, kind) for position, kind in enumerate(kinds)]
        return Waiting(execution.run_id, execution, calls)

    async def one_more_about_to_wait(self, *kinds: Kind) -> Waiting:
        """The same, as a copy of the first one of these kinds."""
        if kinds not in self.originals:
            self.originals[kinds] = await self.about_to_wait(kinds)
        first = self.originals[kinds]
        run_id = RunId(str(uuid.uuid4()))
        await self.rows("select audit.copy(%s, %s)", first.run_id, run_id)
        execution = replace(first.execution, run_id=run_id)
        return Waiting(run_id, execution, [self.wait(execution, n, kind) for n, kind in enumerate(kinds)])

    # What may happen at the same moment, each a transaction of its own.

    async def end(self, execution: Execution, ending: Ending) -> bool:
        async with self.database.transaction("segment.end", execution.tenant) as session:
            return await segments.end(session, execution, ending)

    async def decide(self, approval_id: str, decision: Decision, by: str = "ada") -> RunId:
        async with self.database.transaction("approval.decide", DEFAULT_TENANT) as session:
            return await deciding.decide(session, ApprovalId(approval_id), Said(person(by), decision))

    async def administrate(self, body: Callable[[Any], Awaitable[object]], *, dies: bool = False) -> None:
        """What an admin does, in a transaction of its own; with `dies` nothing of it remains."""
        async with self.people.all_tenants("admin") as session:
            await body(session)
            if dies:
                await session.rollback()

    async def expire(self, approval_id: str) -> bool:
        async with self.database.transaction("watchdog.expire", DEFAULT_TENANT) as session:
            return await deciding.expire(session, ApprovalId(approval_id))

    async def receive(
        self,
        action_id: ActionId,
        *,
        attempt: int = 1,
        source: Literal["answer", "verification"] = "answer",
        worker_id: WorkerId = ADA,
        result: Any = "done",
    ) -> None:
        async with self.database.transaction("effect.answered", DEFAULT_TENANT) as session:
            await receipts.receive(
                session, action_id, attempt=attempt, source=source, result=result, worker_id=worker_id
            )

    async def refuse(self, action_id: ActionId, *, attempt: int = 1, worker_id: WorkerId = ADA) -> bool:
        async with self.database.transaction("effect.refused", DEFAULT_TENANT) as session:
            return await attempts.refuse(session, action_id, attempt=attempt, reason="refused", worker_id=worker_id)

    async def cancel(self, run_id: RunId) -> None:
        async with self.database.transaction("run.cancel", DEFAULT_TENANT) as session:
            await runs.cancel(session, run_id, by="ada", reason="asked for")

    async def release(self, run_id: RunId) -> None:
        async with self.database.transaction("run.release", DEFAULT_TENANT) as session:
            await runs.release(session, run_id, by="ada")

    async def lose(self, run_id: RunId, n: int) -> None:
        """The engine forgets a segment: it says that its workflow has ended, and nobody has ended it here."""
        async with self.database.all_tenants("engine") as session:
            await session.execute(_LOSE, {"id": f"{run_id}:{n}"})
        async with self.database.all_tenants("time") as session:
            await session.execute(_LONG_AGO, {"run_id": run_id, "n": n})

    async def restart_lost(self, run_id: RunId, n: int) -> bool:
        async with self.database.transaction("watchdog.restart", DEFAULT_TENANT) as session:
            return await segments.restart_lost(session, run_id=run_id, n=n, why="a test", stalls_max=5)

    async def wake(self, run_id: RunId) -> bool:
        async with self.database.transaction("wake", DEFAULT_TENANT) as session:
            return await waits.wake(session, run_id)

    # Looking.

    async def seen(self, run_id: RunId) -> dict[str, Any]:
        """Everything there is about a run, as the owner of the database sees it."""
        [[seen]] = await self.rows(_SEEN, run_id)
        return seen


def person(name: str, *roles: str) -> Principal:
    """Ada and Bob are managers, as the scene has them."""
    return Principal(DEFAULT_TENANT, name, frozenset(roles or MANAGER), authenticated=True)


def question(execution: Execution, request: Request, **terms: Any) -> Question:
    """What a manager is asked about a request; `terms`: other ones than the usual."""
    usual = Terms("always", ("role:manager",), people_min=1, not_requester=False, agent_version="1")
    return Question(
        request.action_id,
        execution.run_id,
        execution.tenant,
        tool=request.tool,
        arguments=request.arguments,
        binding=request.arguments,
        terms=replace(usual, **terms),
        expires=timedelta(hours=1),
    )


@asynccontextmanager
async def open_scene(url: str) -> AsyncGenerator[Scene]:
    """A scene on an empty, migrated database, at whose workers a dispatcher has looked."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin, Monitor.open(url) as monitor:
        await admin.execute(_AUDIT.encode())
        name = admin.info.dbname
        await admin.execute(f'alter database "{name}" set deadlock_timeout = 20'.encode())
        await admin.execute(f'alter database "{name}" set synchronous_commit = off'.encode())
        # An actor may stand in the middle of its transaction for as long as the others need.
        limits = Limits(idle_in_transaction_s=600)
        database, people = SteppedDatabase(url, limits), SteppedDatabase(url, limits, API)
        try:
            async with database.all_tenants("register") as session:
                for worker_id in (ADA, BOB, EVE):
                    await register(session, worker_id)
                await serve(session, VERSION)
                await admitting.look(session, fresh_s=0)
            async with people.all_tenants("people") as session:
                for name in ("ada", "bob"):
                    await principals.put(session, DEFAULT_TENANT, name, roles=MANAGER, by="test")
            yield Scene(database, people, admin, monitor)
        finally:
            await people.close()
            await database.close()


async def serve(
    session: Any,
    version: str,
    *,
    state_version: int = 1,
    reads: Collection[int] = (1,),
    tools: Collection[str] = ("publish",),
) -> None:
    """What the start of a worker of this version says."""
    serves = Serves(AGENT, "1", state_version, frozenset(reads), frozenset(tools), {}, {})
    await versions.announce(session, version, [serves])
    await versions.begin(session, version)


async def register(
    session: Any, worker_id: WorkerId, *, version: str = VERSION, pid: int = 1, ready: bool = True
) -> None:
    await workers.register(
        session,
        worker_id=worker_id,
        version=version,
        host="test",
        machine=f"elsewhere of {worker_id}",
        pid=pid,
        pid_start="0",
        lease_s=LEASE_S,
    )
    if ready:
        await workers.ready(session, worker_id)
