"""Named, versioned, immutable results, content-addressed by the SHA-256 of their bytes."""

import hashlib

from pydantic import BaseModel, ConfigDict
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_one
from transactions.errors import InvalidInput, NotFound, SurefootError
from transactions.ids import ActionId, RunId, Tenant
from transactions.statements import load

_ARTIFACTS = load("artifacts")
ARTIFACT_BYTES_MAX = 64 * 1024 * 1024
_NAME_CHARACTERS_MAX = 200


class ArtifactRef(BaseModel):
    """An immutable reference: this name and version always mean the bytes with this SHA-256 (64 hex digits)."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: int
    sha256: str
    size_bytes: int
    media_type: str


async def save(
    session: AsyncSession,
    *,
    tenant: Tenant,
    run_id: RunId,
    action_id: ActionId,
    name: str,
    content: bytes,
    media_type: str,
) -> ArtifactRef:
    """Store the next version of `name`. The database verifies the hash over the bytes that it stored."""
    if not 1 <= len(name) <= _NAME_CHARACTERS_MAX:
        raise InvalidInput(f"An artifact's name has 1 to {_NAME_CHARACTERS_MAX} characters: choose another.")
    if len(content) > ARTIFACT_BYTES_MAX:
        raise InvalidInput(f"Artifact {name} has {len(content)} bytes; the limit is {ARTIFACT_BYTES_MAX}: split it.")
    await execute(session, _ARTIFACTS["lock_name"], tenant=tenant, name=name)
    row = await fetch_one(
        session,
        _ARTIFACTS["save"],
        tenant=tenant,
        run_id=run_id,
        action_id=action_id,
        name=name,
        media_type=media_type,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        content=content,
    )
    assert row is not None
    return ArtifactRef.model_validate(dict(row))


async def read(session: AsyncSession, tenant: Tenant, name: str, version: int) -> tuple[ArtifactRef, bytes]:
    """The bytes of one version, hashed again on the way out. Raises NotFound."""
    row = await fetch_one(session, _ARTIFACTS["get"], tenant=tenant, name=name, version=version)
    if row is None:
        raise NotFound(f"No artifact {name!r} version {version}.")
    content = bytes(row["content"])
    if hashlib.sha256(content).hexdigest() != row["sha256"]:
        raise SurefootError(f"Artifact {name!r} version {version} does not match its hash: restore it from a backup.")
    return ArtifactRef.model_validate({k: row[k] for k in ArtifactRef.model_fields}), content
