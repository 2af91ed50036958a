"""Removes what writers of artifacts left behind in stores outside. In every worker; together they do it at one pace.

A loop of its own, so that a store that answers slowly holds no other duty up.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from transactions import ArtifactStore, is_transient

_log = logging.getLogger("surefoot.sweeper")
_EVERY_S = 600.0


@dataclass(frozen=True, slots=True)
class Sweeper:
    """`older_than_s`: what was written so long ago, and is not referenced, never will be."""

    store: ArtifactStore
    older_than_s: float
    still_mine: Callable[[], None]
    every_s: float = _EVERY_S

    async def run(self) -> None:
        """Until cancelled; nothing to do where all artifacts are in Postgres."""
        while self.store.stores:
            try:
                await self.run_once()
            except Exception as error:
                if not is_transient(error):
                    _log.exception("a sweep failed; a later one goes on")
            await asyncio.sleep(self.every_s * random.uniform(0.75, 1.25))  # noqa: S311  jitter, not a secret

    async def run_once(self) -> None:
        """Sweep the stores that no worker has swept for `every_s`."""
        self.still_mine()
        for swept in await self.store.sweep_if_due(every_s=self.every_s, older_than_s=self.older_than_s):
            if swept.staged or swept.orphans:
                _log.warning(
                    "removed %d staged and %d unknown objects from %s", swept.staged, swept.orphans, swept.store
                )
