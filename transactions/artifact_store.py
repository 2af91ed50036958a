"""Where a process keeps the bytes of artifacts, and how they get there whole or not at all.

    1. a row in `staged_objects` is committed, with the name of an object to be
    2. the bytes are written to that object, read back and verified
    3. the commit that references the object takes the staged row, which has to be there

Killed anywhere, what is left is a reference to verified bytes, or something that the sweeper removes. The sweeper takes
staged rows before it removes their objects, so that a writer who comes late gets no row, and references nothing. Bytes
that go to Postgres are written in the row, by the commit itself.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transactions.access import WORKER, Access
from transactions.artifacts import SWEPT, Found, Stored, in_row
from transactions.database import Database, Limits, fetch_all, fetch_one
from transactions.errors import ArtifactDamaged, StoreFailed, StoreUnavailable
from transactions.failpoints import failpoint
from transactions.ids import DEFAULT_TENANT, Tenant
from transactions.statements import load
from transactions.stores import POSTGRES, Store, open_stores

_ARTIFACTS = load("artifacts")
_log = logging.getLogger("surefoot.artifacts")
_STAGING = Limits(pool_connections=4)
_BATCH = 500


@dataclass(slots=True)
class Swept:
    """What a sweep removed of one store: rows that were staged and never referenced, and objects that nobody knows."""

    store: str
    staged: int = 0
    orphans: int = 0


@dataclass(frozen=True, slots=True)
class ArtifactStore:
    """The stores of this process. By default there is only Postgres.

    `database` has a pool of its own: who stages holds a connection already, and waits for no other's.
    """

    writes_to: Store | None = None
    stores: Sequence[Store] = ()
    database: Database | None = field(default=None, repr=False)

    @classmethod
    def from_setting(
        cls,
        setting: str | None,
        database_url: str,
        access: Access = WORKER,
        *,
        lease_s: float = float("inf"),
        application: str = "surefoot",
    ) -> "ArtifactStore":
        """As `SUREFOOT_ARTIFACTS` says. With `API` it stages and reads, and sweeps nothing.

        lease_s: that of this deployment's workers. application: what its sessions are called at the server. Raises
        InvalidInput.
        """
        writes_to, stores = open_stores(setting or POSTGRES)
        if not stores:
            return cls(writes_to, stores)
        limits = _STAGING.within(lease_s)
        return cls(writes_to, stores, Database(database_url, limits, access, application=application))

    def sweeping(self) -> "ArtifactStore":
        """The same stores with a worker's access, for one sweep: close it after that."""
        if self.database is None:
            return self
        return replace(self, database=Database(self.database.url, self.database.limits, WORKER))

    async def close(self) -> None:
        if self.database is not None:
            await self.database.close()

    async def check(self) -> None:
        """Raises StoreFailed for a store that cannot be used; not for one that is away, for which calls wait."""
        for store in self.stores:
            try:
                await store.check()
            except StoreUnavailable as error:
                _log.warning("%s", error)

    # Writing.

    async def stage(self, tenant: Tenant, content: bytes) -> Stored:
        """Bytes that a commit can reference. Raises StoreUnavailable, StoreFailed; nothing is referenced then."""
        store = self.writes_to
        if store is None:
            return in_row(content)
        assert self.database is not None
        async with self.database.transaction("artifact.stage", tenant) as session:
            row = await fetch_one(session, _ARTIFACTS["stage"], tenant=tenant, store=store.name)
        assert row is not None
        name = row["object"]
        sha256 = await asyncio.to_thread(_hash, content)
        try:
            failpoint("artifact.before_put")
            await store.put(name, content)
            failpoint("artifact.after_put")
            await self._verify(tenant, store, name, sha256)
        except StoreUnavailable as error:
            _log.warning("%s", error)
            raise
        failpoint("artifact.after_verify")
        return Stored(sha256, len(content), None, store.name, name)

    async def _verify(self, tenant: Tenant, store: Store, name: str, sha256: str) -> None:
        try:
            found = await asyncio.to_thread(_hash, await store.get(name))
        except LookupError:
            if not await self._is_staged(tenant, store, name):
                raise StoreUnavailable(SWEPT) from None
            found = "nothing"
        if found != sha256:
            raise StoreFailed(
                f"The artifact store {store.name} gave back {found[:12]} for what was written to it as {sha256[:12]}: "
                "check its disks; nothing was kept of this artifact."
            )

    async def _is_staged(self, tenant: Tenant, store: Store, name: str) -> bool:
        assert self.database is not None
        async with self.database.transaction("artifact.ask", tenant) as session:
            row = await fetch_one(session, _ARTIFACTS["is_staged"], object=name, store=store.name)
        return row is not None and bool(row["is_staged"])

    # Reading.

    async def content(self, found: Found) -> bytes:
        """The bytes, verified. Raises ArtifactDamaged, StoreUnavailable, StoreFailed (it is not configured here)."""
        what = f"Artifact {found.ref.name!r} version {found.ref.version}"
        content = found.content
        if content is None:
            store = next((store for store in self.stores if store.name == found.store), None)
            if store is None:
                raise StoreFailed(
                    f"{what} is in {found.store}, which this process does not know: "
                    f"add {found.store} to SUREFOOT_ARTIFACTS."
                )
            assert found.object is not None
            try:
                content = await store.get(found.object)
            except LookupError as error:
                raise ArtifactDamaged(f"{what} is gone from {found.store}: restore {found.object} there.") from error
        if await asyncio.to_thread(_hash, content) != found.ref.sha256:
            raise ArtifactDamaged(
                f"{what} does not match its hash, so its bytes in {found.store} were changed: restore it from a backup."
            )
        return content

    # Sweeping.

    async def sweep(self, *, older_than_s: float) -> Sequence[Swept]:
        """Remove what was staged so long ago and never referenced, and objects that have neither row nor reference.

        Safe at any time, beside writers and other sweepers, and to die in the middle of: what is left is the next
        one's. A writer that takes longer than `older_than_s` writes again.
        """
        return await self._sweep_each(self.stores, older_than_s)

    async def sweep_if_due(self, *, every_s: float, older_than_s: float) -> Sequence[Swept]:
        """The stores that nobody of this deployment has swept for so long."""
        stores: list[Store] = []
        for store in self.stores:
            assert self.database is not None
            async with self.database.all_tenants("artifact.begin_sweep") as session:
                due = await fetch_one(
                    session,
                    _ARTIFACTS["begin_sweep_if_due"],
                    tenant=DEFAULT_TENANT,
                    store=store.name,
                    every_s=every_s,
                )
            if due is not None:
                stores.append(store)
        return await self._sweep_each(stores, older_than_s)

    async def _sweep_each(self, stores: Sequence[Store], older_than_s: float) -> Sequence[Swept]:
        """One that fails keeps no other from being swept; it is raised at the end."""
        swept: list[Swept] = []
        failed: StoreFailed | StoreUnavailable | None = None
        for store in stores:
            try:
                swept.append(await self._sweep(store, older_than_s))
            except (StoreFailed, StoreUnavailable) as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return swept

    async def _sweep(self, store: Store, older_than_s: float) -> Swept:
        swept = Swept(store.name)
        while staged := await self._take_old(store, older_than_s):
            failpoint("artifact.before_delete")  # whoever still writes there can reference it no more
            await store.delete(staged)
            failpoint("artifact.after_delete")
            swept.staged += len(staged)
        async for written in store.older_than(await self._deployment(), older_than_s):
            orphans = await self._unknown(store, written)
            if orphans:
                await store.delete(orphans)
                swept.orphans += len(orphans)
        return swept

    async def _take_old(self, store: Store, older_than_s: float) -> Sequence[str]:
        assert self.database is not None
        async with self.database.all_tenants("artifact.sweep") as session:
            rows = await fetch_all(
                session,
                _ARTIFACTS["take_old_staged_skip_locked"],
                store=store.name,
                older_than_s=older_than_s,
                limit=_BATCH,
            )
        return [row["object"] for row in rows]

    async def _unknown(self, store: Store, written: Sequence[str]) -> Sequence[str]:
        assert self.database is not None
        async with self.database.all_tenants("artifact.look") as session:
            rows = await fetch_all(
                session, _ARTIFACTS["neither_staged_nor_referenced"], objects=list(written), store=store.name
            )
        return [row["object"] for row in rows]

    async def _deployment(self) -> str:
        assert self.database is not None
        async with self.database.all_tenants("artifact.look") as session:
            row = await fetch_one(session, _ARTIFACTS["deployment"])
        assert row is not None
        return row["deployment"]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
