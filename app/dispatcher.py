"""Hands to the engine what waits for its turn. In every worker, one active at a time; safe to die in the middle of.

Woken by whoever ends a segment while something waits, and guaranteed by a poll.
"""

import logging
import random
from collections.abc import Callable

from transactions import Database, Wakeups, admitting, is_transient

_log = logging.getLogger("surefoot.dispatcher")


class Dispatcher:
    """`run_once` is one look; which segments are admitted is decided by `transactions.admitting`."""

    def __init__(self, database: Database, wakeups: Wakeups, poll_s: float, still_mine: Callable[[], None]) -> None:
        self._database = database
        self._wakeups = wakeups
        self._poll_s = poll_s
        self._still_mine = still_mine
        self._backlog = False

    def freed(self) -> None:
        """Say, after the commit that ended a segment, that there is room; nobody is woken while nothing waits."""
        if self._backlog:
            self._wakeups.poke("queue")

    async def run(self) -> None:
        """Until cancelled."""
        poked = True
        while True:
            try:
                while await self.run_once(fresh_s=0.0 if poked else self._poll_s / 2):
                    poked = True
            except Exception as error:
                if not is_transient(error):
                    _log.exception("a look at the queue failed; the next one tries again")
            poked = await self._wakeups.wait("queue", self._poll_s * random.uniform(0.75, 1.0))  # noqa: S311  jitter

    async def run_once(self, *, fresh_s: float = 0.0) -> bool:
        """One look. Whether there may be more to admit right now."""
        self._still_mine()
        async with self._database.all_tenants("queue.look") as session:
            looked = await admitting.look(session, fresh_s=fresh_s)
        self._backlog = looked.backlog
        return looked.again
