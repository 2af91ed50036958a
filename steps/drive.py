"""One effect being driven under one ticket: its rows, its tool, and the commits that every part of driving it needs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from pydantic import JsonValue

from steps import results
from steps.bench import Bench
from steps.gate import Gate
from steps.kinds import Action
from steps.results import Kept
from steps.spec import Spec
from transactions import (
    ActionState,
    Run,
    Session,
    Tenant,
    WorkerId,
    actions,
    approvals,
    outbox,
    runs,
    until_committed,
)
from transactions.actions import Ticket

T = TypeVar("T")
_LEASE_SLACK_S = 15.0


class Unreadable(Exception):
    """The effect is of a run that this version of its agent cannot read, or of a tool that it has not."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The action's row as its claim left it, and the monotonic time before that, from which its attempt counts."""

    row: Mapping[str, Any]
    began: float


class Where(TypedDict):
    """Which attempt a fact is about, and who tells it."""

    attempt: int
    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class Drive:
    """Made by `load` from rows alone. Its commits are repeated while the database is away."""

    bench: Bench
    ticket: Ticket
    tenant: Tenant
    spec: Spec
    run: Run
    deps: Any
    arguments: dict[str, Any]
    request: JsonValue

    @classmethod
    async def load(cls, bench: Bench, ticket: Ticket, tenant: Tenant) -> "Drive":
        """Raises Unreadable, and what the deps factory raises."""

        async def rows() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
            async with bench.database.transaction("effect.load", tenant) as session:
                action = await actions.get(session, ticket.action_id)
                return action, await runs.identity(session, action["run_id"])

        action, identity = await until_committed(rows, bench.still_mine)
        agent = bench.agents[action["agent"]]
        begun = identity["agent_version"] is not None and not identity["ended"]
        if begun and identity["state_version"] not in agent.states.reads:
            raise Unreadable(
                f"the run's state is of version {identity['state_version']}, which version {agent.version} of "
                f"{agent.name} cannot read: a worker of a version that can takes it"
            )
        if action["tool"] not in agent.specs:
            raise Unreadable(
                f"version {agent.version} of {agent.name} has no tool {action['tool']}: start one that has"
            )
        spec = agent.specs[action["tool"]]
        run = bench.run(identity)
        deps = await until_committed(lambda: agent.make_deps(run), bench.still_mine)
        request = await until_committed(lambda: results.restored(bench, tenant, action), bench.still_mine)
        return cls(bench, ticket, tenant, spec, run, deps, spec.parse(request), action["request"])

    async def commit(self, name: str, body: Callable[[Session], Awaitable[T]]) -> T:
        async def once() -> T:
            async with self.bench.database.transaction(name, self.tenant) as session:
                return await body(session)

        return await until_committed(once, self.bench.still_mine)

    def gate(self, session: Session) -> Gate:
        """The gate before the action, in this transaction."""
        tx = self.bench.tx(session, self.run, self.deps, self.ticket.action_id)
        return Gate(tx, self.spec, self.bench.agents[self.run.agent])

    async def commit_result(
        self, name: str, value: JsonValue, body: Callable[[Session, JsonValue], Awaitable[None]]
    ) -> None:
        """Record what was answered. The bytes of a large answer are written first, and referenced by that commit."""
        inline_bytes = self.bench.agents[self.run.agent].limits.result_inline_bytes

        async def once() -> None:
            kept = await Kept.of(self.bench.store, self.run, self.ticket.action_id, value, inline_bytes=inline_bytes)
            async with self.bench.database.transaction(name, self.tenant) as session:
                await body(session, await kept.saved(session))

        await until_committed(once, self.bench.still_mine)

    async def row(self) -> Mapping[str, Any]:
        return await self.commit("effect.load", lambda session: actions.get(session, self.ticket.action_id))

    def where(self, row: Mapping[str, Any]) -> Where:
        return {"attempt": row["attempt"], "worker_id": self.ticket.worker_id}

    async def action(self, row: Mapping[str, Any]) -> Action[Any]:
        """What the body and its verifier are given; `bound` is what was approved."""
        bound: Mapping[str, JsonValue] = {}
        if self.spec.approval is not None:
            bound = await self.commit("effect.bound", lambda s: approvals.binding(s, self.ticket.action_id))
        return Action(self.deps, self.ticket.action_id, row["attempt"], row["claim_generation"], self.run, bound)

    # The delivery, whose claim is the right to act.

    async def renew(self) -> bool:
        """False: the claim is no longer ours."""
        return await self.commit(
            "effect.renew",
            lambda session: outbox.renew(
                session,
                self.ticket.action_id,
                outbox.EFFECT,
                attempt=self.ticket.attempt,
                worker_id=self.ticket.worker_id,
                lease_s=lease_s(self.spec),
            ),
        )

    async def back_off(self, state: ActionState, *, pause_s: float, why: str) -> None:
        """Back to the schedule, due after `pause_s`.

        Not when the action is not in `state` any more: what a person said is due at once.
        """

        async def give_back(session: Session) -> None:
            if await actions.still(session, self.ticket.action_id, state):
                await self.give_back(session, pause_s=pause_s, why=why)

        await self.commit("effect.back_off", give_back)

    async def give_back(self, session: Session, *, pause_s: float, why: str) -> None:
        await outbox.give_back_effect(
            session,
            self.ticket.action_id,
            attempt=self.ticket.attempt,
            worker_id=self.ticket.worker_id,
            pause_s=pause_s,
            detail=why,
        )

    async def close(self, row: Mapping[str, Any]) -> None:
        """Its action has settled."""
        state = "delivered" if row["state"] == ActionState.SUCCEEDED else "discarded"
        await self.commit(
            "effect.close",
            lambda session: outbox.close_effect(
                session, [self.ticket.action_id], state=state, detail=f"the action is {row['state']}"
            ),
        )


def may_count(row: Mapping[str, Any]) -> bool:
    """Whether an attempt before may have been taken, for where a key is honoured it is sent again without a look."""
    return row["safety"] == "idempotent" and row["unknown_attempts"] > 0


def lease_s(spec: Spec) -> float:
    """How long a ticket is held without a sign of life: an attempt, its verification, and slack."""
    return 2 * spec.limits.attempt_s + _LEASE_SLACK_S
