"""Artifacts: what runs have made. Rows are read in a transaction, and the bytes after it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from app.acting.base import Base, told_in_words
from app.acting.difference import Difference, between
from transactions import ArtifactRef, Role, artifacts
from transactions.access import require_worker
from transactions.artifact_store import Swept

SWEPT_AFTER_S = 3600.0


class ArtifactActs(Base):
    async def artifact(self, name: str, version: int) -> bytes:
        """The bytes of an artifact version, verified against its hash. Raises NotFound, ArtifactDamaged."""
        return (await self.open_artifact(name, version))[1]

    async def open_artifact(self, name: str, version: int) -> tuple[ArtifactRef, bytes]:
        """The same, with what is known of it."""
        async with self._transaction("read", Role.VIEWER) as session:
            found = await artifacts.find(session, self.tenant, name, version)
        return found.ref, await self.store.content(found)

    async def artifacts(self, name: str | None = None, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Versions, the newest first; of all names, or of one.

        `name`, `version`, `sha256`, `size_bytes`, `media_type`, `run_id`, `created_at`.
        """
        async with self._transaction("read", Role.VIEWER) as session:
            return await artifacts.page(session, self.tenant, name=name, limit=limit)

    async def artifact_difference(self, name: str, old: int, new: int) -> Difference:
        """What is different between two versions. Raises NotFound, ArtifactDamaged."""
        (before, was), (after, now) = await self.open_artifact(name, old), await self.open_artifact(name, new)
        return await asyncio.to_thread(between, before, was, after, now)

    async def sweep_artifacts(self, *, older_than_s: float = SWEPT_AFTER_S) -> Sequence[Swept]:
        """Remove now what writers left behind in the stores outside, as workers do. Needs an admin of the deployment.

        older_than_s: what was staged within that time may still be written.
        """
        self._need_deployment()
        async with told_in_words():
            await require_worker(self.database.url)  # staged objects of all tenants are a worker's
            store = self.store.sweeping()
            try:
                return await store.sweep(older_than_s=older_than_s)
            finally:
                if store is not self.store:
                    await store.close()
