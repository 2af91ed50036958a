"""Approvals: what waits for a decision, and deciding."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from app.acting.base import Base, told_in_words
from steps.editing import Edit
from transactions import (
    ActionId,
    ApprovalId,
    InvalidInput,
    Role,
    RunId,
    UnknownAgent,
    actions,
    approvals,
    deciding,
    revisions,
    runs,
)
from transactions.deciding import Decision, Said
from transactions.words import checked_json


class ApprovalActs(Base):
    async def pending_approvals(self, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Approvals that wait for a decision, oldest first."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await approvals.pending(session, self.tenant, limit=limit)

    async def approval(self, approval_id: str) -> Mapping[str, Any]:
        """One approval, with its `decisions`: what each person said. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="approval", id=approval_id) as session:
            return await approvals.get(session, ApprovalId(approval_id))

    async def approvals_of(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """Every approval that a run has asked for, those too that were superseded. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="run", id=run_id) as session:
            return await approvals.of_run(session, RunId(run_id))

    async def decide(
        self, approval_id: str, decision: Decision, *, reason: str | None = None, changes: JsonValue = None
    ) -> RunId:
        """Approve or reject; one decision counts. Needs an approver, and one of those it is asked of.

        changes: approve something else instead: some of the call's arguments, or what the tool's `edit` takes. It is a
        new action and a new approval, decided in the same commit; where several people have to agree, the others are
        asked about it. Raises NotFound, Forbidden, Conflict, InvalidInput, UnknownAgent (to change what it does).
        """
        if changes is not None and decision == "reject":
            raise InvalidInput(deciding.REJECTED_WITH_CHANGES)
        if changes is not None:
            checked_json("changes", changes, bytes_max=revisions.REQUEST_BYTES_MAX)
        edit = None if changes is None else await self._edit(approval_id, changes)
        async with self._transaction("approval.decide", Role.APPROVER, noun="approval", id=approval_id) as session:
            changed = None
            if edit is not None:
                await actions.lock_unsettled(session, edit.run.run_id)  # before what the edit locks, and the run after
                changed = await edit.question(session)
            said = Said(self.who, decision, reason, changed)
            return await deciding.decide(session, ApprovalId(approval_id), said)

    async def _edit(self, approval_id: str, changes: JsonValue) -> Edit:
        """Made before the transaction that applies it, for deps may take their time."""
        async with self._transaction("read", Role.APPROVER, noun="approval", id=approval_id) as session:
            approval = await approvals.get(session, ApprovalId(approval_id))
            action = await actions.get(session, ActionId(approval["action_id"]))
            identity = await runs.identity(session, RunId(approval["run_id"]))
        agent = self.agents.get(identity["agent"])
        if agent is None:
            raise UnknownAgent(
                f"{approval_id} is of agent {identity['agent']!r}, which is not loaded here, so what it does cannot be "
                "changed: add it to SUREFOOT_AGENTS, or reject it with the reason."
            )
        async with told_in_words():
            return await Edit.made(self.database, self.store, agent, identity=identity, action=action, change=changes)
