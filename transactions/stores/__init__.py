"""Where the bytes of artifacts are kept outside the database: a folder, or an S3-compatible store."""

from collections.abc import Sequence

from transactions.errors import InvalidInput
from transactions.stores.protocol import Store

POSTGRES = "postgres"


__all__ = ["POSTGRES", "Store", "open_stores"]


def open_stores(setting: str) -> tuple[Store | None, Sequence[Store]]:
    """The store to write to (None: the row in Postgres) and all that are named: URLs with spaces between.

    Raises InvalidInput, which says what to write instead.
    """
    names = setting.split() or [POSTGRES]
    if POSTGRES in names[1:]:
        raise InvalidInput(
            "SUREFOOT_ARTIFACTS: postgres can always be read; name it first, to write to it, or leave it out."
        )
    stores = [_open(name) for name in names if name != POSTGRES]
    if len({store.name for store in stores}) < len(stores):
        raise InvalidInput("SUREFOOT_ARTIFACTS names a store twice: name each once.")
    return (None if names[0] == POSTGRES else stores[0]), stores


def _open(url: str) -> Store:
    scheme = url.partition("://")[0]
    if scheme == "file":
        from transactions.stores.folder import FolderStore

        return FolderStore.from_url(url)
    if scheme == "s3":
        from transactions.stores.s3 import S3ArtifactStore

        return S3ArtifactStore.from_url(url)
    raise InvalidInput(
        f"SUREFOOT_ARTIFACTS={url!r}: write postgres, file:///an/absolute/folder, or "
        "s3://bucket/prefix?endpoint=https://...&region=..., or unset it for postgres."
    )
