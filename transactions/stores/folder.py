"""Artifacts in a folder, such as a mounted volume that all workers share."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from transactions.errors import InvalidInput, StoreFailed, StoreUnavailable
from transactions.failpoints import failpoint

T = TypeVar("T")
_UNFINISHED = ".part"
_BATCH = 500
# What a network file system says while its server is away.
_PASSING = frozenset({errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENETUNREACH})


@dataclass(frozen=True, slots=True)
class FolderStore:
    """An object is the file `{folder}/{deployment}/{id}`, renamed there once its bytes are on the disk."""

    folder: Path

    @classmethod
    def from_url(cls, url: str) -> "FolderStore":
        """`file:///an/absolute/folder`. Raises InvalidInput."""
        parts = urlsplit(url)
        folder = Path(unquote(parts.path))
        if parts.netloc or parts.query or parts.fragment or not folder.is_absolute() or ".." in folder.parts:
            raise InvalidInput(
                f"SUREFOOT_ARTIFACTS={url!r}: write file:///an/absolute/folder, with three slashes and no `..`."
            )
        return cls(folder)

    @property
    def name(self) -> str:
        return self.folder.as_uri()

    async def put(self, name: str, content: bytes) -> None:
        await self._do(lambda: self._put(name, content))

    def _put(self, name: str, content: bytes) -> None:
        path = self._path(name)
        if not path.parent.is_dir():
            try:
                path.parent.mkdir(exist_ok=True)
            except FileNotFoundError as error:
                raise self._missing() from error
            _sync(self.folder)
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            with unfinished.open("xb") as file:
                failpoint("folder.before_write")
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # the sweeper would remove it later
                unfinished.unlink()
            raise
        failpoint("folder.before_rename")
        try:
            unfinished.rename(path)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{unfinished} was swept while it was written: it is written again.") from error
        failpoint("folder.after_rename")
        _sync(path.parent)

    async def get(self, name: str) -> bytes:
        try:
            return await self._do(self._path(name).read_bytes)
        except FileNotFoundError as error:
            raise LookupError(name) from error

    async def delete(self, names: Sequence[str]) -> None:
        def unlink() -> None:
            for name in names:
                path = self._path(name)
                path.with_name(path.name + _UNFINISHED).unlink(missing_ok=True)
                path.unlink(missing_ok=True)

        await self._do(unlink)

    async def older_than(self, deployment: str, age_s: float) -> AsyncIterator[Sequence[str]]:
        files = self._old(deployment, age_s)
        while batch := await self._do(lambda: list(islice(files, _BATCH))):
            yield batch

    def _old(self, deployment: str, age_s: float) -> Iterator[str]:
        folder = self.folder / deployment
        if not folder.is_dir():
            return
        written_before = self._now() - age_s
        for entry in os.scandir(folder):
            try:
                written = entry.stat(follow_symlinks=False).st_mtime
            except FileNotFoundError:
                continue  # another sweeper was here
            own = entry.name.removesuffix(_UNFINISHED)
            if written <= written_before and _is_id(own):
                yield f"{deployment}/{own}"

    def _now(self) -> float:
        """The clock by which the folder's files have their times."""
        probe = self.folder / f".surefoot-{uuid4()}"
        probe.touch(exist_ok=False)
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    async def check(self) -> None:
        """Raises StoreFailed for a folder that is missing or cannot be written to."""
        try:
            await self._do(self._now)
        except FileNotFoundError as error:
            raise self._missing() from error

    def _missing(self) -> StoreFailed:
        return StoreFailed(
            f"The folder of artifacts {self.folder} is not there: make or mount it, or correct SUREFOOT_ARTIFACTS."
        )

    def _path(self, name: str) -> Path:
        deployment, _, own = name.partition("/")
        if not (_is_id(deployment) and _is_id(own)):
            raise StoreFailed(f"{name!r} is no object of {self.name}: restore the artifact's row from a backup.")
        return self.folder / deployment / own

    async def _do(self, call: Callable[[], T]) -> T:
        """In a thread; what the system says in words. FileNotFoundError is the caller's."""
        try:
            return await asyncio.to_thread(call)
        except FileNotFoundError:
            raise
        except OSError as error:
            why = f"The folder of artifacts {self.folder} cannot be used ({error.strerror})"
            if error.errno in _PASSING:
                raise StoreUnavailable(f"{why}: nothing was lost, and it is tried again.") from error
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StoreFailed(f"{why}: make room there; nothing was kept of this artifact.") from error
            raise StoreFailed(f"{why}: let this user write there, or correct SUREFOOT_ARTIFACTS.") from error


def _is_id(name: str) -> bool:
    """Others may put files there, too."""
    return bool(name) and set(name) <= set("0123456789abcdef-")


def _sync(folder: Path) -> None:
    """What was renamed or made in it outlives a loss of power."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
