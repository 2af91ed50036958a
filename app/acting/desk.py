"""The operator's desk: effects whose outcome is unknown, and receipts that contradict what is settled."""

from dataclasses import replace

from pydantic import JsonValue

from app.acting.base import Base, told_in_words
from steps.bench import run_of
from steps.results import Kept
from transactions import ActionId, Role, RunId, desk, runs
from transactions.desk import Desk, File, Outcome, Statement


class DeskActs(Base):
    async def desk(self, *, limit: int = 100) -> Desk:
        """Effects that wait for a person to say what became of them, and receipts that contradict what is settled."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await desk.look(session, self.tenant, limit=limit)

    async def action(self, action_id: str) -> File:
        """Request, attempts, verdicts with evidence, receipts and decisions of an action. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="action", id=action_id) as session:
            return await desk.file(session, ActionId(action_id))

    async def settle(
        self,
        action_id: str,
        outcome: Outcome,
        *,
        reason: str | None = None,
        result: JsonValue = None,
        evidence: JsonValue = None,
    ) -> RunId:
        """Say what became of an effect whose outcome is unknown; one decision counts. Needs an operator.

        `succeeded`: with the result that the tool would have given, which its declared type has to take where this
        process knows the agent. `absent`: it did not happen, and is sent again. `failed`: the agent is told the reason.
        evidence: how one knows, such as the id that the other side gave it.
        Raises NotFound, Conflict, InvalidInput.
        """
        says = Statement(outcome, self.who.name, reason, result, evidence, self.who.authenticated)
        kept = None if outcome != "succeeded" else await self._kept(ActionId(action_id), says)
        async with self._transaction("action.settle", Role.OPERATOR, noun="action", id=action_id) as session:
            if kept is not None:
                says = replace(says, result=await kept.saved(session))
            return await desk.settle(session, ActionId(action_id), says)

    async def _kept(self, action_id: ActionId, says: Statement) -> Kept | None:
        """The result as the tool would have given it. Its bytes are written before the transaction, if it is large."""
        async with self._transaction("read", Role.OPERATOR, noun="action", id=action_id) as session:
            row = await desk.action(session, action_id)
            identity = await runs.identity(session, RunId(row["run_id"]))
        agent = self.agents.get(row["agent"])
        if agent is None or row["tool"] not in agent.specs:
            return None
        result = agent.specs[row["tool"]].accept(says.result)
        desk.check(replace(says, result=result))
        async with told_in_words():
            run = run_of(self.database, self.store, identity)
            return await Kept.of(self.store, run, action_id, result, inline_bytes=agent.limits.result_inline_bytes)

    async def ask_again(self, action_id: str) -> RunId:
        """Have the other side asked again what became of an effect, now and for a while on the schedule.

        Needs an operator. Raises NotFound, Conflict (it is not UNKNOWN, or has no verifier), InvalidInput.
        """
        async with self._transaction("action.ask_again", Role.OPERATOR, noun="action", id=action_id) as session:
            return await desk.ask_again(session, ActionId(action_id), by=self.who.name)
