"""The rows of artifacts: named, versioned, immutable results, content-addressed by the SHA-256 of their bytes.

Where the bytes are kept, and how they get there, is in `transactions.artifact_store`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import InvalidInput, NotFound, StoreUnavailable
from transactions.ids import ActionId, RunId, Tenant
from transactions.statements import load
from transactions.stores import POSTGRES

_ARTIFACTS = load("artifacts")
ARTIFACT_BYTES_MAX = 64 * 1024 * 1024
NAME_CHARACTERS_MAX = 200
SWEPT = "What was written of an artifact was swept before it was referenced: it is written again."
# For a query of a run: the row of one version, as `Found.of` takes it.
GET = str(_ARTIFACTS["get"])


class ArtifactRef(BaseModel):
    """An immutable reference: this name and version always mean the bytes with this SHA-256 (64 hex digits)."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: int
    sha256: str
    size_bytes: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes that can be referenced: to be written in the row, or verified in an object of a store and staged."""

    sha256: str
    size_bytes: int
    content: bytes | None
    store: str = POSTGRES
    object: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A version, and where its bytes are. `ArtifactStore.content` reads and verifies them."""

    ref: ArtifactRef
    store: str
    object: str | None
    content: bytes | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Found":
        content = None if row["content"] is None else bytes(row["content"])
        return cls(_ref(row), row["store"], row["object"], content)


def _ref(row: Mapping[str, Any]) -> ArtifactRef:
    return ArtifactRef.model_validate({name: row[name] for name in ArtifactRef.model_fields})


def not_found(name: str, version: int) -> NotFound:
    return NotFound(f"No artifact {name!r} version {version}.")


def check(name: str, size_bytes: int) -> None:
    """Raises InvalidInput, before anything is written."""
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidInput(f"An artifact's name has 1 to {NAME_CHARACTERS_MAX} characters: choose another.")
    if size_bytes > ARTIFACT_BYTES_MAX:
        raise InvalidInput(f"Artifact {name} has {size_bytes} bytes; the limit is {ARTIFACT_BYTES_MAX}: split it.")


def in_row(content: bytes) -> Stored:
    return Stored(hashlib.sha256(content).hexdigest(), len(content), content)


async def save(
    session: AsyncSession,
    *,
    tenant: Tenant,
    run_id: RunId,
    action_id: ActionId | None,
    name: str,
    content: bytes | Stored,
    media_type: str,
    result_of: str | None = None,
) -> ArtifactRef:
    """Reference the bytes as the next version of `name`. The database verifies the hash of what it stores itself.

    What is in a store outside was verified there, and its staged row is taken by this commit: raises StoreUnavailable
    when the sweeper had it, to do all of it again. result_of: the call whose large result it is.
    """
    stored = in_row(content) if isinstance(content, bytes) else content
    check(name, stored.size_bytes)
    if stored.object is not None and not await fetch_one(
        session, _ARTIFACTS["take_staged"], object=stored.object, store=stored.store
    ):
        raise StoreUnavailable(SWEPT)
    await execute(session, _ARTIFACTS["lock_name"], tenant=tenant, name=name)
    row = await fetch_one(
        session,
        _ARTIFACTS["save"],
        tenant=tenant,
        run_id=run_id,
        action_id=action_id,
        name=name,
        media_type=media_type,
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        content=stored.content,
        store=stored.store,
        object=stored.object,
        result_of=result_of,
    )
    assert row is not None
    return _ref(row)


async def save_result(
    session: AsyncSession,
    *,
    tenant: Tenant,
    run_id: RunId,
    action_id: ActionId | None,
    name: str,
    content: Stored,
    media_type: str,
    result_of: str,
) -> ArtifactRef:
    """Reference a call's large result. The same bytes for the same call are the version that is there.

    The answer to its commit may have been lost, and it comes again; what was staged for it then is left to the sweeper.
    """
    await execute(session, _ARTIFACTS["lock_name"], tenant=tenant, name=name)
    row = await fetch_one(session, _ARTIFACTS["result_of"], result_of=result_of, sha256=content.sha256)
    if row is not None:
        return _ref(row)
    return await save(
        session,
        tenant=tenant,
        run_id=run_id,
        action_id=action_id,
        name=name,
        content=content,
        media_type=media_type,
        result_of=result_of,
    )


async def find(session: AsyncSession, tenant: Tenant, name: str, version: int) -> Found:
    """Raises NotFound."""
    row = await fetch_one(session, _ARTIFACTS["get"], tenant=tenant, name=name, version=version)
    if row is None:
        raise not_found(name, version)
    return Found.of(row)


async def result_of(session: AsyncSession, call: str, *, sha256: str | None = None) -> Found | None:
    """The large result of an action or a call that was kept first; or the one with this hash."""
    row = await fetch_one(session, _ARTIFACTS["result_of"], result_of=call, sha256=sha256)
    return None if row is None else Found.of(row)


async def run_has_any(session: AsyncSession, run_id: RunId) -> bool:
    row = await fetch_one(session, _ARTIFACTS["any_of_run"], run_id=run_id)
    return row is not None and bool(row["there_is_one"])


async def page(session: AsyncSession, tenant: Tenant, *, name: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
    """Versions, the newest first: `name`, `version`, `sha256`, `size_bytes`, `media_type`, `run_id`, `created_at`."""
    return await fetch_all(session, _ARTIFACTS["page"], tenant=tenant, name=name, limit=limit)
