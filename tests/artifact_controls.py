"""What is taken away from a writer's process before it starts, so that the judge must find something."""

import asyncio
import hashlib

from sqlalchemy import text

from transactions import ArtifactStore, Tenant, artifacts
from transactions.artifacts import Stored
from transactions.database import fetch_one
from transactions.statements import load

_LATE_S = 0.3


def referenced_before_it_is_written() -> None:
    """The commit does not wait for the bytes, and so nobody has verified them."""

    async def stage(self: ArtifactStore, tenant: Tenant, content: bytes) -> Stored:
        store = self.writes_to
        assert store is not None
        assert self.database is not None
        async with self.database.transaction("artifact.stage", tenant) as session:
            row = await fetch_one(session, load("artifacts")["stage"], tenant=tenant, store=store.name)
        assert row is not None

        async def put() -> None:
            await asyncio.sleep(_LATE_S)
            await store.put(row["object"], content)

        _late.add(asyncio.ensure_future(put()))
        return Stored(hashlib.sha256(content).hexdigest(), len(content), None, store.name, row["object"])

    setattr(ArtifactStore, "stage", stage)  # noqa: B010  its own process


_late: set[asyncio.Future[None]] = set()


def referenced_without_taking() -> None:
    """The commit leaves the staged row, so that the sweeper cannot know that the object is referenced now."""
    statements = {**load("artifacts"), "take_staged": text("select 1 as one where :object || :store is not null")}
    setattr(artifacts, "_ARTIFACTS", statements)  # noqa: B010  its own process
