"""Starts what schedules say, in every worker: whoever comes first starts it, once, with the commit that moves it on."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from transactions import Database, is_transient, schedules

_log = logging.getLogger("surefoot.scheduler")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """`run_once` starts what is due now."""

    database: Database
    every_s: float
    still_mine: Callable[[], None]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                while await self.run_once():
                    pass
            except Exception as error:
                if not is_transient(error):
                    _log.exception("a round of the scheduler failed; the next one tries again")
            await asyncio.sleep(self.every_s * random.uniform(0.75, 1.0))  # noqa: S311  jitter, not a secret

    async def run_once(self) -> bool:
        """Start what is due. Whether anything was started: then more of it may be due."""
        self.still_mine()
        async with self.database.all_tenants("schedule.fire") as session:
            fired = await schedules.fire_due(session)
        for one in fired:
            if one.why is not None:
                _log.warning("schedule %s of tenant %s: %s", one.name, one.tenant, one.why)
        return any(one.run_ids for one in fired)
