"""Artifacts in an S3-compatible store, by obstore. Needs the extra `s3`."""

import os
import re
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from transactions.errors import InvalidInput, StoreFailed, StoreUnavailable

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config, S3Store

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_PASSING = frozenset({408, 425, 429})
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_BATCH = 500
_REASON_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class S3ArtifactStore:
    """An object is `{prefix}/{deployment}/{id}` of the bucket, put whole by one request."""

    name: str
    _store: "S3Store"

    @classmethod
    def from_url(cls, url: str) -> "S3ArtifactStore":
        """`s3://bucket/prefix?endpoint=...&region=...`, with the usual AWS variables. Raises InvalidInput."""
        try:
            from obstore.store import S3Store
        except ImportError as error:
            raise InvalidInput(
                "SUREFOOT_ARTIFACTS names an S3 store, which needs the extra s3: install surefoot[s3], "
                "or unset it for postgres."
            ) from error
        parts, said = urlsplit(url), parse_qs(urlsplit(url).query)
        bucket, prefix = parts.netloc, parts.path.strip("/")
        if not _BUCKET.fullmatch(bucket) or ".." in prefix or said.keys() - {"endpoint", "region"}:
            raise InvalidInput(
                f"SUREFOOT_ARTIFACTS={url!r}: write s3://bucket/prefix?endpoint=https://...&region=..., "
                "and the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        if not any(os.environ.get(name) for name in _CREDENTIALS):
            raise InvalidInput(
                f"SUREFOOT_ARTIFACTS names s3://{bucket}, and there are no credentials: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY."
            )
        endpoint = said.get("endpoint", [""])[0]
        config: S3Config = {"region": said.get("region", ["us-east-1"])[0]}
        if endpoint:
            config["endpoint"] = endpoint
        store = S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": "3s",
                "timeout": "30s",
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
        )
        return cls(f"s3://{bucket}/{prefix}".rstrip("/"), store)

    async def put(self, name: str, content: bytes) -> None:
        with self._told():
            # Whole, in one request: what an upload in parts leaves when it is cut off would be seen by no listing.
            await self._store.put_async(name, content, use_multipart=False)

    async def get(self, name: str) -> bytes:
        try:
            with self._told():
                answer = await self._store.get_async(name)
                return (await answer.bytes_async()).to_bytes()
        except _NotThere as error:
            raise LookupError(name) from error

    async def delete(self, names: Sequence[str]) -> None:
        with self._told():
            await self._store.delete_async(list(names))

    async def older_than(self, deployment: str, age_s: float) -> AsyncIterator[Sequence[str]]:
        with self._told():
            # The store's own clock: what it says of an object that is written now.
            probe = f"{deployment}.clock"
            await self._store.put_async(probe, b"", use_multipart=False)
            written_before = (await self._store.head_async(probe))["last_modified"] - timedelta(seconds=age_s)
            batches: AsyncIterator[Sequence[ObjectMeta]] = cast("Any", self._store).list(
                f"{deployment}/", chunk_size=_BATCH
            )
            async for batch in batches:
                yield [one["path"] for one in batch if one["last_modified"] <= written_before]

    async def check(self) -> None:
        """Raises StoreFailed for a bucket that is not there or that does not let us; not while the store is away."""
        with self._told():
            await self._store.put_async("check", b"", use_multipart=False)

    @contextmanager
    def _told(self) -> Generator[None]:
        """What the store or the way there says, in words."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            first = str(error).partition("\n")[0][:_REASON_CHARS_MAX]
            found = _STATUS.search(first)
            status = int(found[1]) if found else None
            if "NoSuchBucket" in str(error):
                raise StoreFailed(
                    f"The artifact store {self.name} has no such bucket: make it, or correct SUREFOOT_ARTIFACTS."
                ) from error
            if isinstance(error, FileNotFoundError):
                raise _NotThere from error
            if status in (401, 403):
                raise StoreFailed(
                    f"The artifact store {self.name} does not let us ({status}): correct AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or what they may do there."
                ) from error
            if status is not None and 400 <= status < 500 and status not in _PASSING:
                raise StoreFailed(f"The artifact store {self.name} refused: {first}. Put that right there.") from error
            raise StoreUnavailable(
                f"The artifact store {self.name} cannot be reached ({first}): nothing was lost, and it is tried again."
            ) from error


class _NotThere(Exception):
    """There is no such object."""
