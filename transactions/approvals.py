"""The approval of an action: asked for, bound to exactly what it will do, and looked at again when that is done.

An action may be asked about again when something has changed since; each time is a row, and only the last one counts.
The caller holds the lock of the action's row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import outbox
from transactions.canonical import canonical_json, request_hash
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import NotFound
from transactions.ids import ActionId, ApprovalId, EntryId, RunId, Tenant
from transactions.statements import load
from transactions.states import ApprovalState

_APPROVALS = load("approvals")
# Told to whoever is subscribed: that somebody has to decide, that they still have to, and that others may now too.
_REMINDERS_MAX = 20
_TOLD_BYTES_MAX = 64 * 1024
_SHOWN_CHARS_MAX = 120
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """The rule that asks, and under which version of the agent. approvers: `role:NAME` or `user:NAME`, any of them.

    people_min: how many different people have to agree. not_requester: none of them may have started the run.
    """

    policy: str
    approvers: tuple[str, ...]
    people_min: int
    not_requester: bool
    agent_version: str

    def as_json(self) -> dict[str, JsonValue]:
        return {**asdict(self), "approvers": list(self.approvers)}


@dataclass(frozen=True, slots=True)
class Question:
    """All that a decision is bound to, and how long it may take. `arguments`: canonical; `binding`: references.

    stands_from: other versions of the agent under which it may have been approved. remind: how often whoever is
    subscribed is reminded. escalates: after this, those of `escalates_to` may decide too.
    """

    action_id: ActionId
    run_id: RunId
    tenant: Tenant
    tool: str
    arguments: JsonValue
    binding: JsonValue
    terms: Terms
    expires: timedelta
    stands_from: frozenset[str] = frozenset()
    remind: timedelta | None = None
    escalates: timedelta | None = None
    escalates_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an action may not be done now. `final`: nor later; else it is asked for, or has to be asked for anew.

    difference: what has changed since it was approved, each as `[then, now]`. question: what is to be asked then.
    """

    why: str
    final: bool = False
    pending: bool = False
    difference: Mapping[str, JsonValue] | None = None
    question: Question | None = None


def binding_hash(tool: str, arguments: JsonValue, binding: JsonValue) -> str:
    """What a decision is bound to: the tool, its arguments and the references it resolves to."""
    return request_hash({"tool": tool, "arguments": arguments, "binding": binding})


async def last(session: AsyncSession, action_id: ActionId) -> Row | None:
    """The approval of an action that counts."""
    return await fetch_one(session, _APPROVALS["last_of_action"], action_id=action_id)


async def ask(session: AsyncSession, question: Question, objection: Objection | None = None) -> ApprovalId:
    """Ask, and tell whoever is subscribed. What was asked of this action before is superseded, with the difference."""
    before = await last(session, question.action_id)
    if before is not None:
        await supersede(session, before, why="it was asked for anew" if objection is None else objection.why)
    n = 1 if before is None else before["n"] + 1
    return await _insert(session, question, n=n, before=before, difference=objection and objection.difference)


async def ask_instead(session: AsyncSession, question: Question, *, before: Row, why: str) -> ApprovalId:
    """Ask for what is done instead of another action, whose approval is superseded."""
    await supersede(session, before, why=why)
    difference: dict[str, JsonValue] = {"arguments": [before["arguments"], question.arguments]}
    if before["binding"] != question.binding:
        difference["binding"] = [before["binding"], question.binding]
    return await _insert(session, question, n=1, before=before, difference=difference)


async def supersede(session: AsyncSession, before: Row, *, why: str) -> None:
    await execute(session, _APPROVALS["supersede"], approval_id=before["approval_id"], reason=why)
    await forget_reminders(session, before["action_id"])


async def _insert(
    session: AsyncSession,
    question: Question,
    *,
    n: int,
    before: Row | None,
    difference: Mapping[str, JsonValue] | None,
) -> ApprovalId:
    row = await fetch_one(
        session,
        _APPROVALS["ask"],
        action_id=question.action_id,
        n=n,
        run_id=question.run_id,
        tool=question.tool,
        arguments=canonical_json(question.arguments),
        binding=canonical_json(question.binding),
        binding_hash=binding_hash(question.tool, question.arguments, question.binding),
        approvers=list(question.terms.approvers),
        terms=canonical_json(question.terms.as_json()),
        people_min=question.terms.people_min,
        not_requester=question.terms.not_requester,
        expires_s=question.expires.total_seconds(),
        escalates_s=None if question.escalates is None else question.escalates.total_seconds(),
        escalates_to=None if question.escalates is None else list(question.escalates_to),
        supersedes=None if before is None else before["approval_id"],
        difference=None if difference is None else canonical_json(dict(difference)),
    )
    assert row is not None, "the lock of the action is held, and its last approval was superseded"
    approval_id = ApprovalId(row["approval_id"])
    await _tell(session, question, approval_id)
    return approval_id


async def _tell(session: AsyncSession, question: Question, approval_id: ApprovalId) -> None:
    """Entries for those who are subscribed: at once, at every reminder, and when others may decide too."""
    bound = question.binding
    due = [(outbox.REQUESTED, timedelta(0))]
    if question.remind is not None:
        times = min(_REMINDERS_MAX, int(question.expires / question.remind))
        due += [
            (outbox.REMINDER, question.remind * n)
            for n in range(1, times + 1)
            if question.remind * n < question.expires
        ]
    if question.escalates is not None:
        due.append((outbox.ESCALATED, question.escalates))
    for n, (topic, delay) in enumerate(due):
        subscribed = await fetch_one(session, _APPROVALS["is_subscribed"], topic=topic)
        if subscribed is None or not subscribed["subscribed"]:
            continue
        may = [*question.terms.approvers, *(question.escalates_to if topic == outbox.ESCALATED else ())]
        await outbox.put(
            session,
            entry_id=EntryId(f"{approval_id}#{topic}:{n}"),
            tenant=question.tenant,
            run_id=question.run_id,
            action_id=question.action_id,
            topic=topic,
            payload={
                "approval_id": approval_id,
                "run_id": question.run_id,
                "tool": question.tool,
                "binding": bound if len(canonical_json(bound).encode()) <= _TOLD_BYTES_MAX else None,
                "policy": question.terms.policy,
                "approvers": list[JsonValue](may),
                "expires_in_s": (question.expires - delay).total_seconds(),
            },
            delay=min(delay, outbox.DELAY_MAX),
        )


async def forget_reminders(session: AsyncSession, action_id: ActionId) -> None:
    """Nobody is reminded of what is decided."""
    await execute(session, _APPROVALS["discard_reminders"], action_ids=[action_id])


async def not_needed(session: AsyncSession, action_id: ActionId) -> None:
    """The policy does not ask (any more): what is still open is void."""
    why = "the policy does not ask for it any more"
    if await fetch_one(session, _APPROVALS["void_pending"], action_id=action_id, reason=why) is not None:
        await forget_reminders(session, action_id)


async def objection(session: AsyncSession, question: Question) -> Objection | None:
    """Why the action may not be done now, with everything computed again in `question`; None: it may.

    Locks the approval until the caller's commit.
    """
    row = await fetch_one(session, _APPROVALS["last_of_action_for_update"], action_id=question.action_id)
    if row is None:
        return Objection("it needs an approval and has none")
    state = ApprovalState(row["state"])
    if state is ApprovalState.PENDING:
        return Objection("its approval is pending", pending=True)
    if state is not ApprovalState.APPROVED:
        return Objection(f"its approval is {state}", final=state is not ApprovalState.VOID)
    if row["is_over"]:
        return Objection("its approval has expired", difference={"expires_at": [row["expires_at"].isoformat(), None]})
    if difference := _difference(row, question):
        told = ", ".join(f"{name} is {_shown(now)}, was {_shown(then)}" for name, (then, now) in difference.items())
        return Objection(f"it is not what was approved: {told}", difference=dict(difference))
    may = [*question.terms.approvers, *question.escalates_to]
    lost = await fetch_all(session, _APPROVALS["without_right"], approval_id=row["approval_id"], may=may)
    if lost:
        names = [each["decided_by"] for each in lost]
        return Objection(f"{', '.join(names)} may not approve it any more", difference={"approved_by": [names, None]})
    return await _too_few(session, row, question.terms)


async def _too_few(session: AsyncSession, row: Row, terms: Terms) -> Objection | None:
    """Counted again: an older version may have decided alone what needs several people, or others, by now."""
    said = await fetch_all(session, _APPROVALS["decisions_of"], approval_id=row["approval_id"])
    agreed = [each["decided_by"] for each in said if each["decision"] == "approve"]
    if terms.not_requester:
        agreed = [name for name in agreed if name != row["requester"]]
    if len(agreed) >= terms.people_min:
        return None
    return Objection(f"{terms.people_min} people have to agree", difference={"approved_by": [agreed, None]})


def _difference(row: Row, question: Question) -> dict[str, list[JsonValue]]:
    """What is not as it was approved, each as `[then, now]`."""
    then: dict[str, JsonValue] = {"tool": row["tool"], **_flat("arguments", row["arguments"])}
    now: dict[str, JsonValue] = {"tool": question.tool, **_flat("arguments", question.arguments)}
    if row["binding"] != row["arguments"] or question.binding != question.arguments:
        then |= _flat("binding", row["binding"])
        now |= _flat("binding", question.binding)
    if row["terms"] is not None:  # asked by a version that says them
        then |= row["terms"]
        now |= question.terms.as_json()
        if then["agent_version"] in question.stands_from:
            del then["agent_version"], now["agent_version"]
    names = [name for name in {**then, **now} if canonical_json(then.get(name)) != canonical_json(now.get(name))]
    return {name: [then.get(name), now.get(name)] for name in names}


def _shown(value: JsonValue) -> str:
    text = canonical_json(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def _flat(name: str, value: JsonValue) -> dict[str, JsonValue]:
    return {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}


async def binding(session: AsyncSession, action_id: ActionId) -> Mapping[str, JsonValue]:
    """What was approved of an action; nothing where its policy did not ask."""
    row = await last(session, action_id)
    return row["binding"] if row is not None and row["state"] == ApprovalState.APPROVED else {}


async def pending(session: AsyncSession, tenant: Tenant, *, limit: int) -> Sequence[Row]:
    """Rows of `surefoot.pending_approvals`, oldest first, at most `limit`."""
    return await fetch_all(session, _APPROVALS["pending"], tenant=tenant, limit=limit)


async def get(session: AsyncSession, approval_id: ApprovalId) -> Row:
    """The approval's row with its `decisions`, in their order. Raises NotFound."""
    row = await fetch_one(session, _APPROVALS["get"], approval_id=approval_id)
    if row is None:
        raise NotFound(f"No approval {approval_id}: see `surefoot approvals list`.")
    said = await fetch_all(session, _APPROVALS["decisions_of"], approval_id=approval_id)
    return _with(row, said)


async def of_run(session: AsyncSession, run_id: RunId) -> Sequence[Row]:
    """Every approval that a run has asked for, in that order, with its `decisions`."""
    said = await fetch_all(session, _APPROVALS["decisions_of_run"], run_id=run_id)
    return [
        _with(row, [each for each in said if each["approval_id"] == row["approval_id"]])
        for row in await fetch_all(session, _APPROVALS["of_run"], run_id=run_id)
    ]


def _with(row: Row, said: Sequence[Row]) -> Row:
    """With what was said of it. Of each person the first is kept: a refusal after that stands in the row."""
    if row["state"] == ApprovalState.REJECTED and all(each["decision"] != "reject" for each in said):
        right = str(row["decided_role"])
        refusal = {
            "decision": "reject",
            "decided_by": row["decided_by"],
            "in_right_of": right if right.startswith("user:") else f"role:{right}",
            "authenticated": row["authenticated"],
            "reason": row["reason"],
            "at": row["decided_at"],
        }
        said = [*said, refusal]
    return {**row, "decisions": said}
