"""What a `transaction` tool is given: all that is done with it commits with the tool's result, or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import artifacts, outbox
from transactions.artifact_store import ArtifactStore
from transactions.artifacts import ArtifactRef, Found
from transactions.database import fetch_all
from transactions.errors import InvalidInput
from transactions.ids import ActionId, EntryId, RunId, Tenant

D = TypeVar("D")
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


class Query(Protocol):
    """One read-only SQL statement with `:name` parameters; its rows as mappings."""

    async def __call__(self, sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Run:
    """The run a deps factory makes deps for. `query` runs one read-only SQL statement with `:name` parameters."""

    run_id: RunId
    tenant: Tenant
    agent: str
    input: JsonValue
    principal: str
    query: Query
    store: ArtifactStore = field(default_factory=ArtifactStore, repr=False)

    async def artifact(self, name: str, version: int) -> bytes:
        """The bytes of one artifact version, verified against its hash. Raises NotFound, ArtifactDamaged."""
        return (await self.open_artifact(name, version))[1]

    async def open_artifact(self, name: str, version: int) -> tuple[ArtifactRef, bytes]:
        """The same, with what is known of it."""
        rows = await self.query(artifacts.GET, tenant=self.tenant, name=name, version=version)
        if not rows:
            raise artifacts.not_found(name, version)
        found = Found.of(rows[0])
        return found.ref, await self.store.content(found)


@dataclass(slots=True)
class Tx(Generic[D]):
    """One READ COMMITTED transaction. `session` is a SQLAlchemy AsyncSession: your models work as they are.

    The body may run again after a deadlock or a lost connection, so it does nothing outside this transaction.
    """

    deps: D
    run: Run
    action_id: ActionId
    session: AsyncSession
    artifacts_saved: int = field(default=0, init=False, repr=False)
    _entries: int = field(default=0, init=False, repr=False)

    async def execute(self, sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]:
        """Run one SQL statement with `:name` parameters; its rows as mappings."""
        return await fetch_all(self.session, text(sql), **parameters)

    async def outbox(
        self, topic: str, payload: object, *, key: str | None = None, delay: timedelta = timedelta(0)
    ) -> EntryId:
        """Have `payload` (JSON, or what pydantic can dump to JSON) forwarded after this commit, at least once.

        It goes to every consumer that is subscribed to `topic`. Entries of one `key` reach each of them in the order of
        their commits: one with a `delay` (at most 365 days) holds the later ones of its key back. Raises InvalidInput
        when the payload is too large, the delay out of bounds, or the topic one that Surefoot itself writes.
        """
        if topic in outbox.OWN_TOPICS:
            raise InvalidInput(f"Entries of topic {topic!r} are written by Surefoot alone: choose another topic.")
        entry_id = EntryId(f"{self.action_id}#{topic}:{self._entries}")
        self._entries += 1
        await outbox.put(
            self.session,
            entry_id=entry_id,
            tenant=self.run.tenant,
            run_id=self.run.run_id,
            action_id=self.action_id,
            topic=topic,
            payload=_JSON.validate_python(TypeAdapter(type(payload)).dump_python(payload, mode="json")),
            key=key,
            delay=delay,
        )
        return entry_id

    async def save_artifact(self, name: str, content: bytes, *, media_type: str) -> ArtifactRef:
        """Store the next version of `name`; visible to others with this commit. Raises InvalidInput when too large.

        Its bytes are written and verified before it is referenced, within the time that the transaction has.
        """
        artifacts.check(name, len(content))
        stored = await self.run.store.stage(self.run.tenant, content)
        self.artifacts_saved += 1
        return await artifacts.save(
            self.session,
            tenant=self.run.tenant,
            run_id=self.run.run_id,
            action_id=self.action_id,
            name=name,
            content=stored,
            media_type=media_type,
        )
