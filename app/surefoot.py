"""`Surefoot`: the public object. Start runs, look at them, decide, and serve all of it as a web app."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from fastapi import FastAPI
from pydantic import JsonValue

from app import wiring
from app.artifacts import WithArtifacts
from app.loading import unique
from app.settings import Settings
from app.web.api import build_api
from app.worker import Worker
from outbox import Subscription, unique_subscriptions
from steps import DurableAgent
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ApprovalId,
    ArtifactStore,
    Database,
    DatabaseUnavailable,
    EntryId,
    InvalidInput,
    RunId,
    RunState,
    Session,
    Tenant,
    UnknownAgent,
    approvals,
    backlog,
    desk,
    events,
    is_transient,
    is_unstorable,
    runs,
    subscriptions,
    undo,
)
from transactions.approvals import Decision
from transactions.backlog import Standing
from transactions.desk import Desk, File, Outcome, Statement
from transactions.undo import Done, Way

UNAUTHENTICATED = "unauthenticated"
AWAY = "The database cannot be reached right now: nothing was lost, try again in a moment."
UNSTORABLE = "A text contains a NUL character or half of a surrogate pair, which Postgres cannot store: remove it."


class Surefoot(WithArtifacts):
    """Agents on one database.

        surefoot = Surefoot(database_url, agents=[report])
        app = FastAPI(lifespan=surefoot.lifespan)         # a worker in this process
        app.mount("/surefoot", surefoot.web)
        run_id = await surefoot.start("report", {"month": "2013-08"}, key="report-2013-08")

    Every method may be called from any process; only `lifespan` makes this one a worker.
    """

    def __init__(
        self,
        database_url: str,
        agents: Sequence[DurableAgent[Any]],
        *,
        subscriptions: Sequence[Subscription] = (),
        settings: Settings | None = None,
    ) -> None:
        """subscriptions: consumers of your own; see outbox/README.md. Raises InvalidInput for two of one name."""
        self.settings = settings or Settings.from_env()
        self.database_url = database_url
        self.agents: Mapping[str, DurableAgent[Any]] = {agent.name: agent for agent in unique(agents)}
        self.subscriptions: Sequence[Subscription] = unique_subscriptions(subscriptions)
        self.tenant: Tenant = DEFAULT_TENANT
        self.database = Database(database_url)
        self.store = ArtifactStore.from_setting(self.settings.artifacts, database_url)
        self.worker: Worker | None = None

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:  # noqa: ARG002  the shape FastAPI calls
        """Make this process a worker while the app runs."""
        worker = wiring.build_worker(
            self.database_url,
            [*self.agents.values()],
            self.settings,
            subscriptions=self.subscriptions,
            store=self.store,
        )
        await worker.start()
        self.worker = worker
        try:
            yield
        finally:
            await worker.stop()
            await worker.database.close()
            await self.close()

    @cached_property
    def web(self) -> FastAPI:
        """The HTTP API, to serve or to mount. It starts no worker; give `lifespan` to the app that is served."""
        return build_api(self)

    async def close(self) -> None:
        await self.store.close()
        await self.database.close()

    @asynccontextmanager
    async def _transaction(self, name: str) -> AsyncGenerator[Session]:
        """A transaction of ours; a database that is away is told in words, not as a driver's error."""
        try:
            async with self.database.transaction(name, self.tenant) as session:
                yield session
        except Exception as error:
            if is_transient(error):
                raise DatabaseUnavailable(AWAY) from error
            if is_unstorable(error):
                raise InvalidInput(UNSTORABLE) from error
            raise

    async def ready(self) -> None:
        """Raises DatabaseUnavailable unless the database answers."""
        async with self._transaction("read") as session:
            await runs.page(session, state=None, limit=1)

    # Runs.

    async def start(
        self,
        agent: DurableAgent[Any] | str,
        input: object,
        *,
        key: str | None = None,
        session: Session | None = None,
        principal: str = UNAUTHENTICATED,
    ) -> RunId:
        """Start a run and return its id. The same `key` and input is the same run.

        session: start it in the caller's own transaction; it exists when that commits, and only then.
        Raises UnknownAgent, InvalidInput, Conflict (the key came with another input).
        """
        name = agent if isinstance(agent, str) else agent.name
        known = self.agents.get(name)
        if known is None:
            served = ", ".join(sorted(self.agents)) or "none"
            raise UnknownAgent(f"No agent named {name!r}: choose one of: {served}.")
        value = known.parse_input(input)

        async def begin(session: Session) -> RunId:
            return await runs.start(session, agent=name, input=value, key=key, tenant=self.tenant, principal=principal)

        if session is not None:
            return await begin(session)
        async with self._transaction("run.start") as own:
            return await begin(own)

    async def status(self, run_id: str) -> Mapping[str, Any]:
        """The run's row of `surefoot.run_status`. Raises NotFound."""
        async with self._transaction("read") as session:
            return await runs.status(session, RunId(run_id))

    async def runs(self, *, state: RunState | None = None, limit: int = 50) -> Sequence[Mapping[str, Any]]:
        """The newest runs first."""
        async with self._transaction("read") as session:
            return await runs.page(session, state=state, limit=limit)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Events of a run with a number above `after`, in order. Raises NotFound."""
        async with self._transaction("read") as session:
            await runs.status(session, RunId(run_id))
            return await events.page(session, RunId(run_id), after=after, limit=limit)

    async def timeline(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """The rows of `surefoot.run_timeline`, in order. Raises NotFound."""
        async with self._transaction("read") as session:
            await runs.status(session, RunId(run_id))
            return await runs.timeline(session, RunId(run_id))

    async def release(self, run_id: str) -> None:
        """Let a held run go on. Raises NotFound, Conflict."""
        async with self._transaction("run.release") as session:
            await runs.release(session, RunId(run_id))

    async def cancel(self, run_id: str, *, by: str = UNAUTHENTICATED, reason: str = "asked for") -> None:
        """Cancel a queued, waiting or held run. Raises NotFound, Conflict."""
        async with self._transaction("run.cancel") as session:
            await runs.cancel(session, RunId(run_id), by=by, reason=reason)

    async def undoable(self, run_id: str) -> Sequence[Done]:
        """The effects of a run, what was done last first, and how it stands with undoing each. Raises NotFound,
        UnknownAgent."""
        async with self._transaction("read") as session:
            return await undo.look(session, RunId(run_id), await self._ways(session, run_id))

    async def undo(self, run_id: str, *, by: str = UNAUTHENTICATED, reason: str = "asked for") -> Sequence[Done]:
        """Have undone what a run did that is over, what was done last first, by the workers of its agent.

        How everything stands now; asking twice is asking once. The name is recorded as unauthenticated.
        Raises NotFound, UnknownAgent, Conflict (it is not over, or did nothing that can be undone), InvalidInput.
        """
        async with self._transaction("run.undo") as session:
            return await undo.request(session, RunId(run_id), await self._ways(session, run_id), by=by, reason=reason)

    async def _ways(self, session: Session, run_id: str) -> Mapping[str, Way]:
        """How the tools of the run's agent are undone, as this process knows it."""
        name = (await runs.identity(session, RunId(run_id)))["agent"]
        agent = self.agents.get(name)
        if agent is None:
            raise UnknownAgent(
                f"Run {run_id} is of agent {name!r}, which is not loaded here, so its undos are not known: "
                "add it to SUREFOOT_AGENTS."
            )
        return agent.undo_ways

    # Approvals.

    async def pending_approvals(self, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Approvals that wait for a decision, oldest first."""
        async with self._transaction("read") as session:
            return await approvals.pending(session, limit=limit)

    async def decide(
        self, approval_id: str, decision: Decision, *, by: str, role: str | None = None, reason: str | None = None
    ) -> RunId:
        """Approve or reject; one decision counts. Name and role are recorded as unauthenticated.

        Raises NotFound, Forbidden, Conflict, InvalidInput.
        """
        async with self._transaction("approval.decide") as session:
            return await approvals.decide(
                session,
                ApprovalId(approval_id),
                decision=decision,
                by=by,
                role=role,
                reason=reason,
                authenticated=False,
            )

    # Effects whose outcome is unknown.

    async def desk(self, *, limit: int = 100) -> Desk:
        """Effects that wait for a person to say what became of them, and receipts that contradict what is settled."""
        async with self._transaction("read") as session:
            return await desk.look(session, limit=limit)

    async def action(self, action_id: str) -> File:
        """Request, attempts, verdicts with evidence, receipts and decisions of an action. Raises NotFound."""
        async with self._transaction("read") as session:
            return await desk.file(session, ActionId(action_id))

    async def settle(
        self,
        action_id: str,
        outcome: Outcome,
        *,
        by: str,
        reason: str | None = None,
        result: JsonValue = None,
        evidence: JsonValue = None,
    ) -> RunId:
        """Say what became of an effect whose outcome is unknown; one decision counts. The name is unauthenticated.

        `succeeded`: with the result that the tool would have given, which its declared type has to take where this
        process knows the agent. `absent`: it did not happen, and is sent again. `failed`: the agent is told the reason.
        evidence: how one knows, such as the id that the other side gave it.
        Raises NotFound, Conflict, InvalidInput.
        """
        async with self._transaction("action.settle") as session:
            if outcome == "succeeded":
                row = await desk.action(session, ActionId(action_id))
                agent = self.agents.get(row["agent"])
                spec = None if agent is None else agent.specs.get(row["tool"])
                result = result if spec is None else spec.accept(result)
            says = Statement(outcome, by, reason, result, evidence)
            return await desk.settle(session, ActionId(action_id), says)

    async def ask_again(self, action_id: str, *, by: str) -> RunId:
        """Have the other side asked again what became of an effect, now and for a while on the schedule.

        Raises NotFound, Conflict (it is not UNKNOWN, or has no verifier), InvalidInput.
        """
        async with self._transaction("action.ask_again") as session:
            return await desk.ask_again(session, ActionId(action_id), by=by)

    # The outbox.

    async def deliveries(
        self, *, standing: Standing | None = None, topic: str | None = None, limit: int = 100
    ) -> Sequence[Mapping[str, Any]]:
        """What is not delivered, oldest first: why, since when, and what to do. `standing`: only such ones."""
        async with self._transaction("read") as session:
            return await backlog.page(session, standing=standing, topic=topic, limit=limit)

    async def entry(self, entry_id: str) -> Mapping[str, Any]:
        """An entry of the outbox with its `deliveries`. Raises NotFound."""
        async with self._transaction("read") as session:
            return await backlog.entry(session, EntryId(entry_id))

    async def redrive(self, entry_id: str, *, consumer: str | None = None, by: str = UNAUTHENTICATED) -> Sequence[str]:
        """Have what is dead of an entry delivered again, from now and with fresh attempts. To which consumers.

        Raises NotFound, Conflict (nothing of it is dead, or it is an effect), InvalidInput.
        """
        async with self._transaction("outbox.redrive") as session:
            return await backlog.redrive(session, EntryId(entry_id), consumer=consumer, by=by)

    async def discard(
        self, entry_id: str, *, reason: str, consumer: str | None = None, by: str = UNAUTHENTICATED
    ) -> Sequence[str]:
        """Give a dead delivery up for good, or a pending one that is named: the next of its key goes. Which consumers'.

        Raises NotFound, Conflict, InvalidInput (no reason).
        """
        async with self._transaction("outbox.discard") as session:
            return await backlog.discard(session, EntryId(entry_id), consumer=consumer, reason=reason, by=by)

    async def topics(self) -> Sequence[Mapping[str, Any]]:
        """Who is subscribed to what, within which limits, and whether a live worker has it."""
        async with self._transaction("read") as session:
            return await subscriptions.page(session)

    async def unsubscribe(self, topic: str, consumer: str, *, by: str = UNAUTHENTICATED) -> None:
        """No further entry of this topic goes to this consumer; what was put before stays.

        For a consumer that is gone for good: a worker that has it subscribes it again when it starts.
        Raises NotFound, InvalidInput.
        """
        async with self._transaction("outbox.unsubscribe") as session:
            await subscriptions.end(session, topic, consumer, by=by)
