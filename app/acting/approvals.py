"""Approvals: what waits for a decision, and deciding."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.acting.base import Base
from transactions import ApprovalId, Role, RunId, approvals
from transactions.approvals import Decision


class ApprovalActs(Base):
    async def pending_approvals(self, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Approvals that wait for a decision, oldest first."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await approvals.pending(session, self.tenant, limit=limit)

    async def decide(self, approval_id: str, decision: Decision, *, reason: str | None = None) -> RunId:
        """Approve or reject; one decision counts. Needs an approver, and one of those it is asked of.

        Raises NotFound, Forbidden, Conflict, InvalidInput.
        """
        async with self._transaction("approval.decide", Role.APPROVER, noun="approval", id=approval_id) as session:
            return await approvals.decide(
                session, ApprovalId(approval_id), who=self.who, decision=decision, reason=reason
            )
