"""The gate before an action: its approval is asked for, and checked again in the transaction that claims it."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter

from steps.durable import DurableAgent
from steps.spec import Spec
from transactions import ActionState, ApprovalState, Tx, actions, approvals
from transactions.actions import Ticket
from transactions.approvals import Objection, Question, Terms

_JSON: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class NotNow(Exception):
    """The run takes no new work, or the ticket is another's. The transaction rolls back; nothing was sent."""


class Objected(Exception):
    """The precondition or the approval does not hold, and why. The transaction rolls back; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate before one action of `agent`, in one transaction."""

    tx: Tx[Any]
    spec: Spec
    agent: DurableAgent[Any]

    async def question(self, request: JsonValue) -> Question | None:
        """What a decision on this call is bound to, as it is now; None when its policy does not ask."""
        approval = self.spec.approval
        if approval is None:
            return None
        arguments = self.spec.parse(cast("dict[str, Any]", request))
        if approval.when is not None:
            asks = approval.when(self.tx, **arguments)
            if not (await asks if inspect.isawaitable(asks) else asks):
                return None
        return await self.asked(request)

    async def asked(self, request: JsonValue) -> Question:
        """The same, whatever the rule says of it: a person decides on this call."""
        approval = self.spec.approval
        assert approval is not None
        arguments, bound = self.spec.parse(cast("dict[str, Any]", request)), request
        if approval.binds is not None:
            bound = cast(JsonValue, _JSON.dump_python(dict(await approval.binds(self.tx, **arguments)), mode="json"))
        return Question(
            action_id=self.tx.action_id,
            run_id=self.tx.run.run_id,
            tenant=self.tx.run.tenant,
            tool=self.spec.name,
            arguments=request,
            binding=bound,
            terms=Terms(
                policy=approval.policy,
                approvers=approval.approvers,
                people_min=approval.people_min,
                not_requester=approval.not_requester,
                agent_version=self.agent.version,
            ),
            stands_from=self.agent.keeps_approvals_of,
            expires=approval.expires,
            remind=approval.remind,
            escalates=approval.escalate.after if approval.escalate else None,
            escalates_to=approval.escalate.approvers if approval.escalate else (),
        )

    async def unmet(self, request: JsonValue) -> str | None:
        """Why the tool's precondition does not hold, or None."""
        if self.spec.requires is None:
            return None
        return await self.spec.requires(self.tx, **self.spec.whole(self.spec.parse(cast("dict[str, Any]", request))))

    async def ask(self, request: JsonValue) -> ApprovalState | None:
        """Ask for the approval, if it was not asked for yet; its state now. None: the policy does not ask."""
        question = await self.question(request)
        if question is None:
            await approvals.not_needed(self.tx.session, self.tx.action_id)
            return None
        last = await approvals.last(self.tx.session, self.tx.action_id)
        if last is None:
            await approvals.ask(self.tx.session, question)
            return ApprovalState.PENDING
        return ApprovalState(last["state"])

    async def objection(self, request: JsonValue) -> Objection | None:
        """Why the call may not be done now, or None. Locks the approval until this transaction ends."""
        if (why := await self.unmet(request)) is not None:
            return Objection(why, final=True)
        return await self._unapproved(request)

    async def _unapproved(self, request: JsonValue) -> Objection | None:
        question = await self.question(request)
        found = None if question is None else await approvals.objection(self.tx.session, question)
        return None if found is None else replace(found, question=question)

    async def ask_anew(self, objection: Objection) -> None:
        """After an objection that is not final: ask, unless it is asked for already."""
        assert objection.question is not None, "what is required and does not hold is final"
        if not objection.pending:
            await approvals.ask(self.tx.session, objection.question, objection)

    async def claim(self, ticket: Ticket, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Claim the action; what it requires, its approval, the binding and the rights are checked with it.

        Raises NotNow, Objected, Fenced. Lock order: action, business rows, run, approval.
        """
        if not await actions.still(self.tx.session, ticket.action_id, ActionState.PREPARED):
            raise NotNow(f"{ticket.action_id} is not to be claimed")
        if (why := await self.unmet(row["request"])) is not None:  # before the run is locked: it may lock what it reads
            raise Objected(why)
        claimed = await actions.claim(self.tx.session, ticket, attempt=row["attempt"])
        if claimed is None:
            raise NotNow(f"{ticket.action_id} cannot be claimed now")
        objection = await self._unapproved(row["request"])
        if objection is not None:
            raise Objected(objection.why)
        return claimed
