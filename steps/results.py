"""A result that is too large for a message is kept as an artifact, and a small value stands for it everywhere else.

The small value is what the model, the step and the ledger have, and what a receipt says: it names the bytes by their
hash. That it stands for an artifact is known from the artifact's row (`result_of`), never from how a value looks.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue

from steps.bench import Bench
from steps.weighing import Large, large
from transactions import (
    ActionId,
    ArtifactRef,
    ArtifactStore,
    Event,
    Execution,
    Run,
    Session,
    Tenant,
    TransactionTooLong,
    artifacts,
    number_fenced,
)
from transactions.artifacts import NAME_CHARACTERS_MAX, Stored

_HASH_CHARACTERS = 40
_READ_WITH = "read_artifact or search_artifact"


def name_of(call: str) -> str:
    """The artifact's name of an action's or a call's large result."""
    name = f"result/{call}"
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    return f"result/{hashlib.sha256(call.encode()).hexdigest()[:_HASH_CHARACTERS]}"


def stands_for(ref: ArtifactRef, head: str) -> JsonValue:
    """What the model is given instead."""
    known = cast("dict[str, JsonValue]", ref.model_dump(mode="json"))
    return {"artifact": known.pop("name"), **known, "head": head, "read_with": _READ_WITH}


async def save(session: Session, run: Run, call: str, large: Large, stored: Stored, *, is_action: bool) -> JsonValue:
    """Reference a large result in the commit that records it. The same bytes for the same call are one version."""
    ref = await artifacts.save_result(
        session,
        tenant=run.tenant,
        run_id=run.run_id,
        action_id=ActionId(call) if is_action else None,
        name=name_of(call),
        content=stored,
        media_type=large.media_type,
        result_of=call,
    )
    return stands_for(ref, large.head)


@dataclass(frozen=True, slots=True)
class Kept:
    """What an effect answered: if it is large, its bytes are written, and `saved` has the commit reference them."""

    run: Run
    action_id: ActionId
    value: JsonValue
    large: Large | None
    stored: Stored | None

    @classmethod
    async def of(
        cls, store: ArtifactStore, run: Run, action_id: ActionId, value: JsonValue, *, inline_bytes: int
    ) -> "Kept":
        found = large(value, inline_bytes=inline_bytes)
        stored = None if found is None else await store.stage(run.tenant, found.content)
        return cls(run, action_id, value, found, stored)

    async def saved(self, session: Session) -> JsonValue:
        """What stands for it, in the commit that records it."""
        if self.large is None or self.stored is None:
            return self.value
        return await save(session, self.run, self.action_id, self.large, self.stored, is_action=True)


async def keep_of_transaction(session: Session, bench: Bench, run: Run, action_id: ActionId, large: Large) -> JsonValue:
    """In the transaction itself, within the time that it has. Raises TransactionTooLong."""
    limit_s = bench.database.limits.transaction_s
    try:
        async with asyncio.timeout(limit_s):
            stored = await bench.store.stage(run.tenant, large.content)
    except TimeoutError as error:
        raise TransactionTooLong(
            f"its result took over {limit_s:g} s to be kept, and it was rolled back: answer less, or save it in a read"
        ) from error
    return await save(session, run, action_id, large, stored, is_action=True)


async def keep_of_read(bench: Bench, execution: Execution, run: Run, call: str, large: Large) -> JsonValue:
    """In a commit before the step's record. Killed between the two it reads again, and what was kept first counts."""
    async with bench.database.transaction("result.look", run.tenant) as session:
        found = await artifacts.result_of(session, call)
    if found is not None:
        return stands_for(found.ref, Large.of(await bench.store.content(found), found.ref.media_type).head)
    stored = await bench.store.stage(run.tenant, large.content)
    async with bench.database.transaction("result.keep", run.tenant) as session:
        value = await save(session, run, call, large, stored, is_action=False)
        await number_fenced(session, execution, Event("result.kept", {"call": call, "size_bytes": stored.size_bytes}))
    return value


async def restored(bench: Bench, tenant: Tenant, action: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request of an undo, with the effect's whole result where a small value stands for it."""
    request = cast("Mapping[str, Any]", action["request"])
    if action["undoes"] is None:
        return request
    [(parameter, value)] = request.items()
    if not isinstance(value, dict):
        return request
    said = cast("dict[str, Any]", value)
    async with bench.database.transaction("result.look", tenant) as session:
        found = await artifacts.result_of(session, action["undoes"], sha256=str(said.get("sha256")))
    if found is None or said != stands_for(found.ref, said.get("head", "")):
        return request
    content = await bench.store.content(found)
    whole = content.decode()
    return {parameter: whole if found.ref.media_type == Large.TEXT else json.loads(whole)}
