"""Runs that are over, by the product's own functions, and what can be the matter with one that keeps it."""

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from tests.races.scenes import AGENT, BOB, Scene
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ArtifactRef,
    EntryId,
    Execution,
    RunState,
    actions,
    artifacts,
    keys,
    outbox,
    removal,
)
from transactions.removal import START, Batch
from transactions.retention import FOREVER, Group
from transactions.segments import Ending

Flaw = Literal[
    "it is not over", "it is young", "unsettled", "may be answered", "contradicted", "undelivered", "pending",
    "open segment", "segment in the queue", "in the engine", "business key", "idempotency key", "counted start",
    "superseded", "held by a table",
]  # fmt: skip
# Those of a run that is over.
FLAWS: tuple[Flaw, ...] = get_args(Flaw)[2:]
KEEP_S, KEYS_S = 1800.0, 3600.0
NOW = datetime.now(UTC)
GROUP = Group(DEFAULT_TENANT, AGENT, KEEP_S)
# A reference that the product does not know of.
MINE = (  # deferred, as some frameworks declare them: it would speak up at the commit
    "create table if not exists public.mine (run_id text references surefoot.runs deferrable initially deferred)"
)
_AGE = (
    "update surefoot.runs set ended_at = ended_at - interval '2 hours' where run_id = %s",
    "update surefoot.actions set settled_at = settled_at - interval '2 hours' where run_id = %s",
)
# Of an agent that nothing else is of, so that it holds nothing back.
_LIMIT = (
    "insert into surefoot.limits (tenant, everyone, agent, starts_max, period_s, changed_by)"
    " values ('default', true, 'limited', 9, 86400, 'ada') on conflict do nothing"
)
_APPROVAL = (
    "insert into surefoot.approvals (approval_id, n, tenant, run_id, action_id, tool, arguments, binding, binding_hash,"
    " approver, expires_at, state, decided_at, supersedes)"
    " values (%s, 9, 'default', %s, %s, 't', '1', '1', 'h', 'role:manager', now(), %s, %s, %s)"
    " on conflict (approval_id) do update set state = excluded.state, decided_at = excluded.decided_at"
)


@dataclass(slots=True)
class Made:
    """A run, how many calls it has made, and what it saved."""

    execution: Execution
    calls: int = 0
    artifact: ArtifactRef | None = None

    @property
    def run_id(self) -> str:
        return self.execution.run_id

    @property
    def first(self) -> ActionId:
        return ActionId(f"{self.run_id}/1/0:publish")


async def begun(scene: Scene) -> Made:
    """A run with an effect that was answered, an artifact, and an entry that was delivered."""
    made = Made(await scene.running())
    await effect(scene, made)
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        made.artifact = await artifacts.save(
            session,
            tenant=DEFAULT_TENANT,
            run_id=made.execution.run_id,
            action_id=made.first,
            name=f"report of {made.run_id}",
            content=uuid.uuid4().bytes,
            media_type="text/plain",
        )
        await outbox.put(
            session,
            entry_id=EntryId(f"{made.first}#news:0"),
            tenant=DEFAULT_TENANT,
            run_id=made.execution.run_id,
            action_id=made.first,
            topic="news",
            payload={},
            consumers=("nobody",),
            key=made.run_id,
        )
    await _delivery(scene, made, "delivered")
    await scene.rows(
        "insert into surefoot.state_migrations (run_id, segment, tenant, from_state, to_state, version, messages)"
        " values (%s, 0, 'default', 1, 2, 'report=2', '[]')",
        made.run_id,
    )
    return made


async def effect(scene: Scene, made: Made, arguments: Mapping[str, Any] | None = None) -> None:
    """One more call that was answered."""
    position, made.calls = made.calls, made.calls + 1
    request = scene.request(made.execution, position, gated=False)
    request = replace(request, arguments=dict(arguments or {"position": position}))
    async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
        await actions.prepare(session, made.execution, request)
        await outbox.put_effect(
            session, request.action_id, tenant=DEFAULT_TENANT, run_id=made.execution.run_id, parked=True
        )
    await scene.receive(request.action_id)


async def asked(scene: Scene, made: Made, key: str) -> bool:
    """One more call, with a business key. Whether the action is its own."""
    position, made.calls = made.calls, made.calls + 1
    request = replace(scene.request(made.execution, position, gated=False), arguments={"key": key})
    async with scene.database.transaction("tool.effect", DEFAULT_TENANT) as session:
        meant = await keys.prepare(session, made.execution, request, key=lambda: key)
        action_id = ActionId(meant.row["action_id"])
        if meant.owned:
            await outbox.put_effect(
                session, action_id, tenant=DEFAULT_TENANT, run_id=made.execution.run_id, parked=True
            )
    if meant.owned:
        await scene.receive(action_id)
    return meant.owned


async def given(scene: Scene, made: Made, reference: ArtifactRef) -> None:
    """The run was started with a reference to an artifact."""
    await scene.rows(
        "update surefoot.runs set input = %s where run_id = %s", json.dumps(reference.model_dump()), made.run_id
    )


async def over(scene: Scene, made: Made, state: Any = RunState.COMPLETED) -> None:
    ending = Ending(state=state, turns=1, usage={}, output="done", reason="a test")
    await scene.end(made.execution, ending)
    await _engine(scene, made, "SUCCESS")


async def aged(scene: Scene, made: Made) -> None:
    """Two hours pass for it."""
    for statement in _AGE:
        await scene.rows(statement, made.run_id)


async def whole(scene: Scene, *, aged_too: bool = True) -> Made:
    """A run that nothing keeps."""
    made = await begun(scene)
    await over(scene, made)
    if aged_too:
        await aged(scene, made)
    return made


async def removed(scene: Scene, keys_s: float = FOREVER, *, group: Group = GROUP) -> tuple[set[str], Counter[str]]:
    """The runs that a pass removes, and why others stay."""
    before = await ids(scene)
    batch: Batch = await removing(scene, keys_s, group=group)
    return before - await ids(scene), batch.kept


async def removing(scene: Scene, keys_s: float = FOREVER, *, group: Group = GROUP) -> Batch:
    async with scene.database.removing("retention.batch") as session:
        return await removal.whole_runs(session, group, START, limit=500, keys_s=keys_s)


async def ids(scene: Scene) -> set[str]:
    return {row[0] for row in await scene.rows("select run_id from surefoot.runs")}


async def spoil(scene: Scene, made: Made, flaw: Flaw, *, there: bool = True) -> None:
    """What keeps a run that is over, past what the product lets come about; or that it is settled."""
    match flaw:
        case "unsettled":
            state, settled = ("UNKNOWN", "null") if there else ("SUCCEEDED", "now() - interval '2 hours'")
            change = f"update surefoot.actions set state = %s, attempt = 1, settled_at = {settled} where action_id = %s"
            await scene.forced(change, state, made.first)
        case "may be answered":
            await scene.rows(
                "insert into surefoot.attempts (action_id, attempt, tenant, generation, worker_id, deadline_at)"
                " values (%s, 7, 'default', 1, 'ada', now() + %s::interval) on conflict (action_id, attempt) do update"
                " set deadline_at = excluded.deadline_at",
                made.first,
                "1 hour" if there else "-1 hour",
            )
        case "contradicted":
            if there:
                await scene.receive(made.first, attempt=9, worker_id=BOB, result="twice")
            else:
                await scene.rows("update surefoot.receipts set contradiction = null where action_id = %s", made.first)
        case "undelivered":
            await _delivery(scene, made, "dead" if there else "delivered")
        case "pending":
            state, decided = ("pending", None) if there else ("void", "now")
            await scene.forced(_APPROVAL, f"of {made.run_id}", made.run_id, made.first, state, decided, None)
        case "open segment" | "segment in the queue":
            unsettled = "open" if flaw == "open segment" else "waiting', agent = 'limited"
            state = (
                f"'{unsettled}', settled_at = null" if there else "'settled', settled_at = now() - interval '2 hours'"
            )
            outcome = "null" if there else "'completed'"
            await scene.forced(
                f"update surefoot.segments set state = {state}, outcome = {outcome} where run_id = %s", made.run_id
            )
        case "counted start":
            await scene.rows(_LIMIT)
            change = "update surefoot.segments set agent = 'limited', rated = %s where run_id = %s"
            await scene.rows(change, there, made.run_id)
        case "in the engine":
            await _engine(scene, made, "PENDING" if there else "SUCCESS")
        case "business key":
            await scene.rows(
                "insert into surefoot.action_calls (call, revision, tenant, run_id, segment, tool, key, action_id,"
                " open) values (%s, 1, 'default', %s, 0, 'publish', %s, %s, false) on conflict do nothing",
                f"{made.run_id} asked", made.run_id, made.run_id, made.first,
            )  # fmt: skip
        case "idempotency key":
            key = made.run_id if there else None
            await scene.rows("update surefoot.runs set idempotency_key = %s where run_id = %s", key, made.run_id)
        case "superseded":
            await _superseded(scene, made, there=there)
        case "held by a table":
            await scene.rows(MINE)
            change = "insert into public.mine values (%s)" if there else "delete from public.mine where run_id = %s"
            await scene.rows(change, made.run_id)
        case "it is not over" | "it is young":
            raise AssertionError(flaw)


async def _superseded(scene: Scene, made: Made, *, there: bool) -> None:
    """By an approval of a run that goes on for ever."""
    mine = f"mine of {made.run_id}"
    if not there:
        await scene.rows("update surefoot.approvals set supersedes = null where supersedes = %s", mine)
        return
    other = await scene.running()
    await scene.forced(_APPROVAL, mine, made.run_id, made.first, "void", "now", None)
    await scene.forced(_APPROVAL, f"of {other.run_id}", other.run_id, f"{other.run_id}/none", "void", "now", mine)


async def _delivery(scene: Scene, made: Made, state: str) -> None:
    await scene.forced(
        "update surefoot.outbox_deliveries set state = %s, settled_at = now() where consumer = 'nobody' and entry_id in"
        " (select entry_id from surefoot.outbox_entries where run_id = %s)",
        state,
        made.run_id,
    )


async def _engine(scene: Scene, made: Made, status: str) -> None:
    await scene.rows(
        "update dbos.workflow_status set status = %s, completed_at = 1 where workflow_uuid = %s",
        status,
        f"{made.run_id}:0",
    )
