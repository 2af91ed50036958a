"""Drive one effect to its end from rows alone: claim, send, receive; verify what is unknown before sending again.

The segment that asked and the relay of any worker call the same `drive`; who holds the ticket acts, the others wait.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, cast

from pydantic import JsonValue

from steps import gate
from steps.bench import Bench
from steps.kinds import Absent, Action, Found, Unsure
from steps.outcomes import Outcome, attempt, call_body
from steps.tools import Spec
from transactions import (
    ActionState,
    Fenced,
    Run,
    Session,
    Tenant,
    WorkerId,
    actions,
    approvals,
    failpoint,
    outbox,
    receipts,
    runs,
    storable_reason,
    until_committed,
)
from transactions.actions import Ticket

T = TypeVar("T")
_log = logging.getLogger("surefoot.effects")
_PAUSE_S = 0.2
_PAUSE_S_MAX = 30.0
_RECHECK_S_MAX = 3600.0
_LEASE_SLACK_S = 15.0
# Verdicts asked for at once; after that the question goes back to the relay's schedule.
_UNSURE_INLINE_MAX = 2


class _Where(TypedDict):
    attempt: int
    worker_id: WorkerId


Driven = Literal["settled", "later", "lost"]


@dataclass(frozen=True, slots=True)
class _Job:
    """One effect being driven under one ticket."""

    ticket: Ticket
    tenant: Tenant
    spec: Spec
    run: Run
    deps: Any
    arguments: dict[str, Any]
    request: JsonValue


class Effects:
    """Drives effects under tickets. Tasks it started belong to it; `drain()` waits for them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._tasks: set[asyncio.Task[Driven]] = set()

    def start(self, ticket: Ticket, tenant: Tenant, claimed: Mapping[str, Any] | None = None) -> asyncio.Task[Driven]:
        """Drive in the background, so that who waits for it may stop waiting and the effect goes on."""
        task = asyncio.create_task(self.drive(ticket, tenant, claimed), name=f"effect {ticket.action_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Driven]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Fenced):
            self._bench.on_fenced(str(error))
        elif error is not None:
            _log.error("%s failed; the lease of its delivery brings it back", task.get_name(), exc_info=error)

    async def drain(self, timeout_s: float) -> None:
        """Wait for what is on its way, then give up the rest: its outcome is unknown, and is verified elsewhere."""
        if not self._tasks:
            return
        _, left = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def drive(self, ticket: Ticket, tenant: Tenant, claimed: Mapping[str, Any] | None = None) -> Driven:
        """Until the action is `settled`, goes back to the relay's schedule (`later`), or the ticket is gone (`lost`).

        claimed: the action's row when the caller has just claimed it in its own commit.
        """
        job = await self._job(ticket, tenant)
        if claimed is not None:
            await self._send(job, claimed)
        pause_s = _PAUSE_S
        unsure = rested = 0  # how many verdicts, and after which attempt
        while await self._renew(job):
            row = await self._load(job)
            if ActionState(row["state"]).settled:  # its entry was delivered again: nothing is asked of anybody
                await self._close(job, row)
            elif row["state"] == ActionState.PREPARED and row["attempt"] > rested:
                rested = row["attempt"]
                await asyncio.sleep(_jittered(pause_s))
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
            elif row["state"] == ActionState.PREPARED:
                if not await self._claim_and_send(job, row) and await self._back_off(
                    job, "PREPARED", pause_s=_PAUSE_S_MAX, why="its run takes no new work now"
                ):
                    return "later"
            elif row["safety"] == "at_most_once":
                await self._doubt(job, row, "sent, and no answer recorded: a person has to say what happened")
                if await self._back_off(job, "UNKNOWN", pause_s=_RECHECK_S_MAX, why="waits for a person"):
                    return "later"
            elif not await self._resolve(job, row):
                unsure += 1
                again_s = min(2.0 ** row["verifications"], _RECHECK_S_MAX)
                if unsure > _UNSURE_INLINE_MAX and await self._back_off(job, "UNKNOWN", pause_s=again_s, why="unsure"):
                    return "later"
                await asyncio.sleep(_jittered(_PAUSE_S))
        self._bench.wakeups.poke("actions")
        return "settled" if ActionState((await self._load(job))["state"]).settled else "lost"

    # One transaction each, repeated while the database is away.

    async def _commit(self, name: str, job: _Job, body: Callable[[Session], Awaitable[T]]) -> T:
        async def once() -> T:
            async with self._bench.database.transaction(name, job.tenant) as session:
                return await body(session)

        return await until_committed(once, self._bench.still_mine)

    async def _job(self, ticket: Ticket, tenant: Tenant) -> _Job:
        async def load() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
            async with self._bench.database.transaction("effect.load", tenant) as session:
                action = await actions.get(session, ticket.action_id)
                return action, await runs.identity(session, action["run_id"])

        action, identity = await until_committed(load, self._bench.still_mine)
        agent = self._bench.agents[action["agent"]]
        spec = agent.specs[action["tool"]]
        run = self._bench.run(identity)
        deps = await until_committed(lambda: agent.make_deps(run), self._bench.still_mine)
        return _Job(ticket, tenant, spec, run, deps, spec.parse(action["request"]), action["request"])

    async def _load(self, job: _Job) -> Mapping[str, Any]:
        return await self._commit("effect.load", job, lambda session: actions.get(session, job.ticket.action_id))

    async def _renew(self, job: _Job) -> bool:
        return await self._commit(
            "effect.renew",
            job,
            lambda session: outbox.renew(
                session,
                job.ticket.action_id,
                outbox.EFFECT,
                attempt=job.ticket.attempt,
                worker_id=job.ticket.worker_id,
                lease_s=lease_s(job.spec),
            ),
        )

    async def _back_off(self, job: _Job, state: str, *, pause_s: float, why: str) -> bool:
        """Back to the schedule. False: the action is not in `state` any more, so what a person said is due at once."""

        async def give_back(session: Session) -> bool:
            if not await actions.still(session, job.ticket.action_id, state):
                return False
            await outbox.give_back_effect(
                session,
                job.ticket.action_id,
                attempt=job.ticket.attempt,
                worker_id=job.ticket.worker_id,
                pause_s=pause_s,
                detail=why,
            )
            return True

        return await self._commit("effect.back_off", job, give_back)

    async def _close(self, job: _Job, row: Mapping[str, Any]) -> None:
        state = "delivered" if row["state"] == ActionState.SUCCEEDED else "discarded"
        await self._commit(
            "effect.close",
            job,
            lambda session: outbox.close_effect(
                session, [job.ticket.action_id], state=state, detail=f"the action is {row['state']}"
            ),
        )

    async def _doubt(self, job: _Job, row: Mapping[str, Any], why: str) -> None:
        await self._commit(
            "effect.doubt",
            job,
            lambda session: actions.doubt(
                session, job.ticket.action_id, attempt=row["attempt"], reason=why, worker_id=job.ticket.worker_id
            ),
        )

    # Sending.

    async def _claim_and_send(self, job: _Job, row: Mapping[str, Any]) -> bool:
        """False: the run takes no new work, or the approval does not hold; nothing was sent."""
        if row["attempt"] >= row["attempts_max"]:
            why = f"gave up after {row['attempt']} attempts: {row['reason']}"
            return await self._commit(
                "effect.refuse",
                job,
                lambda session: actions.refuse(
                    session, job.ticket.action_id, attempt=row["attempt"], reason=why, worker_id=job.ticket.worker_id
                ),
            )

        async def once(session: Session) -> Mapping[str, Any]:
            return await gate.claim(
                self._bench.tx(session, job.run, job.deps, job.ticket.action_id), job.ticket, job.spec, row
            )

        try:
            claimed = await self._commit("effect.claim", job, once)
        except gate.NotNow:
            return False
        except gate.Objection as error:
            await self.withdraw(job.ticket, job.tenant, str(error))
            return True
        await self._send(job, claimed)
        return True

    async def withdraw(self, ticket: Ticket, tenant: Tenant, why: str) -> None:
        """Cancel an action whose approval does not hold, and let its run go on."""

        async def once() -> None:
            async with self._bench.database.transaction("effect.withdraw", tenant) as session:
                await actions.withdraw(session, ticket.action_id, reason=why, worker_id=ticket.worker_id)

        await until_committed(once, self._bench.still_mine)

    async def _send(self, job: _Job, claimed: Mapping[str, Any]) -> None:
        action = await self._action(job, claimed)

        async def call() -> JsonValue:
            self._bench.still_mine()
            failpoint("effect.before_send")
            answer = await call_body(job.spec.body, action, job.arguments)
            failpoint("effect.after_send")
            return job.spec.dump(answer)

        outcome = await attempt(call, timeout_s=claimed["attempt_s"])
        await self._commit(f"effect.{outcome.kind}", job, lambda session: self._record(session, job, claimed, outcome))

    async def _record(self, session: Session, job: _Job, claimed: Mapping[str, Any], outcome: Outcome) -> None:
        where: _Where = {"attempt": claimed["attempt"], "worker_id": job.ticket.worker_id}
        match outcome.kind:
            case "answered":
                await receipts.receive(session, job.ticket.action_id, source="answer", result=outcome.result, **where)
            case "not_sent":
                await actions.not_sent(session, job.ticket.action_id, reason=outcome.reason, **where)
            case "refused":
                await actions.refuse(session, job.ticket.action_id, reason=outcome.reason, **where)
            case "unknown":
                await actions.doubt(session, job.ticket.action_id, reason=outcome.reason, **where)

    async def _action(self, job: _Job, row: Mapping[str, Any]) -> Action[Any]:
        """What the body and its verifier are given; `bound` is what was approved."""
        bound: Mapping[str, JsonValue] = {}
        if job.spec.approval is not None:
            bound = await self._commit("effect.bound", job, lambda s: approvals.binding(s, job.ticket.action_id))
        return Action(job.deps, job.ticket.action_id, row["attempt"], row["claim_generation"], job.run, bound)

    # Verifying.

    async def _resolve(self, job: _Job, row: Mapping[str, Any]) -> bool:
        """Settle what became of the last attempt. False: nobody can tell yet."""
        where: _Where = {"attempt": row["attempt"], "worker_id": job.ticket.worker_id}
        action_id = job.ticket.action_id
        verdict = await self._verdict(job, row)
        left_s = float(row["deadline_left_s"])
        if isinstance(verdict, Absent) and left_s > 0:
            await asyncio.sleep(left_s)  # until then something of the attempt may still arrive there
            verdict = await self._verdict(job, row)
        if isinstance(verdict, Found):
            result = job.spec.dump(verdict.result)

            async def found(session: Session) -> None:
                await actions.judge(session, action_id, verdict="found", evidence=verdict.evidence, **where)
                await receipts.receive(session, action_id, source="verification", result=result, **where)

            await self._commit("effect.found", job, found)
            return True
        if isinstance(verdict, Absent):

            async def absent(session: Session) -> None:
                await actions.judge(session, action_id, verdict="absent", evidence=verdict.evidence, **where)
                await actions.absent(session, action_id, **where)

            await self._commit("effect.absent", job, absent)
            return True

        async def unsure(session: Session) -> None:
            await actions.doubt(session, action_id, reason="verification cannot tell yet", **where)
            await actions.judge(session, action_id, verdict="unsure", evidence=verdict.evidence, **where)

        await self._commit("effect.unsure", job, unsure)
        return False

    async def _verdict(self, job: _Job, row: Mapping[str, Any]) -> Found[Any] | Absent | Unsure:
        if job.spec.verify is None:
            # The other side honours the key, so sending again with the same one is harmless once the attempt is over.
            return Absent("idempotent: the same key is sent again")
        verify = job.spec.verify
        try:
            async with asyncio.timeout(row["attempt_s"]):
                failpoint("effect.before_verify")
                verdict = await verify(await self._action(job, row), **job.arguments)
                failpoint("effect.after_verify")
        except Exception as error:
            return Unsure(storable_reason(f"the verifier failed: {type(error).__name__}: {error}"))
        if not isinstance(verdict, Found | Absent | Unsure):
            return Unsure(f"the verifier answered {type(verdict).__name__}, not Found, Absent or Unsure")
        return cast("Found[Any] | Absent | Unsure", verdict)


def _jittered(pause_s: float) -> float:
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311  not a secret


def lease_s(spec: Spec) -> float:
    """How long a ticket is held without a sign of life: an attempt, its verification, and slack."""
    return 2 * spec.attempt_s + _LEASE_SLACK_S
