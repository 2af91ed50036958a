"""Artifacts for people: list them, read them, say what is different between two versions."""

import asyncio
import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from app.settings import Settings
from transactions import ArtifactRef, ArtifactStore, Session, artifacts
from transactions.artifact_store import Swept

# Of one version: what takes longer to compare than anybody waits is told by sizes and hashes.
_COMPARED_BYTES_MAX = 1024 * 1024
_COMPARED_LINES_MAX = 10_000
DIFF_LINES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Difference:
    """`diff`: a unified diff where both versions are text that can be compared, else None and `why` says why not.

    `cut`: it has more than DIFF_LINES_MAX lines, and the rest was left out.
    """

    old: ArtifactRef
    new: ArtifactRef
    same: bool
    diff: str | None
    cut: bool = False
    why: str | None = None


class WithArtifacts(ABC):
    """The part of `Surefoot` that is about artifacts. Rows are read in a transaction, and the bytes after it."""

    settings: Settings
    store: ArtifactStore

    @abstractmethod
    def _transaction(self, name: str) -> AbstractAsyncContextManager[Session]: ...

    async def artifact(self, name: str, version: int) -> bytes:
        """The bytes of an artifact version, verified against its hash. Raises NotFound, ArtifactDamaged."""
        return (await self.open_artifact(name, version))[1]

    async def open_artifact(self, name: str, version: int) -> tuple[ArtifactRef, bytes]:
        """The same, with what is known of it."""
        async with self._transaction("read") as session:
            found = await artifacts.find(session, name, version)
        return found.ref, await self.store.content(found)

    async def artifacts(self, name: str | None = None, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Versions, the newest first; of all names, or of one.

        `name`, `version`, `sha256`, `size_bytes`, `media_type`, `run_id`, `created_at`.
        """
        async with self._transaction("read") as session:
            return await artifacts.page(session, name=name, limit=limit)

    async def artifact_difference(self, name: str, old: int, new: int) -> Difference:
        """What is different between two versions. Raises NotFound, ArtifactDamaged."""
        (before, was), (after, now) = await self.open_artifact(name, old), await self.open_artifact(name, new)
        if before.sha256 == after.sha256:
            return Difference(before, after, same=True, diff="" if _is_text(before) else None)
        texts = [_text(ref, content) for ref, content in ((before, was), (after, now))]
        if any(text is None for text in texts):
            why = "not both are text that is short enough to compare: compare sizes and hashes, or download them"
            return Difference(before, after, same=False, diff=None, why=why)
        lines, cut = await asyncio.to_thread(_unified, name, old, new, *(text or "" for text in texts))
        return Difference(before, after, same=False, diff="\n".join(lines), cut=cut)

    async def sweep_artifacts(self, *, older_than_s: float | None = None) -> Sequence[Swept]:
        """Remove now what writers left behind in the stores outside, as workers do; by default what is an hour old."""
        return await self.store.sweep(
            older_than_s=self.settings.artifacts_sweep_s if older_than_s is None else older_than_s
        )


def _unified(name: str, old: int, new: int, was: str, now: str) -> tuple[list[str], bool]:
    found = difflib.unified_diff(
        was.splitlines(), now.splitlines(), f"{name} version {old}", f"{name} version {new}", lineterm=""
    )
    lines = list(islice(found, DIFF_LINES_MAX + 1))
    return lines[:DIFF_LINES_MAX], len(lines) > DIFF_LINES_MAX


def _is_text(ref: ArtifactRef) -> bool:
    kind = ref.media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("json", "xml", "yaml"))


def _text(ref: ArtifactRef, content: bytes) -> str | None:
    if not _is_text(ref) or len(content) > _COMPARED_BYTES_MAX or content.count(b"\n") > _COMPARED_LINES_MAX:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
