"""What a store outside the database can do. Objects have names that Surefoot gives: `{deployment}/{random id}`."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class Store(Protocol):
    """Bytes by the name of their object. An object is written once; none is ever changed.

    Every method raises StoreUnavailable where the same call may succeed later, and StoreFailed where a person has to
    put something right first.
    """

    @property
    def name(self) -> str:
        """What the rows of artifacts call it: it stays the same as long as the objects are there."""
        ...

    async def put(self, name: str, content: bytes) -> None:
        """Write an object. When it returns, the bytes outlive this machine's loss of power."""
        ...

    async def get(self, name: str) -> bytes:
        """Raises LookupError when there is no such object."""
        ...

    async def delete(self, names: Sequence[str]) -> None:
        """Remove objects, and what an unfinished write left of them. None there is as good."""
        ...

    def older_than(self, deployment: str, age_s: float) -> AsyncIterator[Sequence[str]]:
        """This deployment's objects and unfinished writes that are so old by the store's own clock, by their names."""
        ...

    async def check(self) -> None:
        """Whether it can be written to, for the start of a worker."""
        ...
