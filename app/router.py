"""Gives open segments to a version that lives and can carry their runs on. A duty of the watchdog in every worker."""

import logging
from dataclasses import dataclass

from app.tries import Tries
from transactions import Database, routing, versions

_BATCH = 500
_log = logging.getLogger("surefoot.router")


@dataclass(frozen=True, slots=True)
class Router:
    """One active at a time; safe to run twice, and to die in the middle of. hold_s: as that of the watchdog."""

    database: Database
    version: str
    grace_s: float
    hold_s: float = 10.0

    async def run_once(self) -> None:
        """A version without a worker for the grace is gone: another takes its place, what only it can read is held."""
        async with self.database.all_tenants("watchdog.route") as session:
            if not await routing.lock(session, hold_s=self.hold_s):
                return
            for version in await versions.replace_what_is_gone(session, gone_s=self.grace_s):
                _log.warning("version %r is current: the one before it has no worker any more", version)
            misrouted = await routing.misrouted(session, version=self.version, limit=_BATCH)
            await routing.move_unbegun(session, misrouted)
            unreadable = await routing.unreadable(session, gone_s=self.grace_s, limit=_BATCH)
            readable = await routing.readable_again(session, limit=_BATCH)
        tries = Tries(_log)
        for one in misrouted:
            if one.begun and one.run_id is not None:
                with tries.one():
                    async with self.database.all_tenants("watchdog.move") as session:
                        if await routing.move_begun(session, one):
                            _log.warning("%s goes from version %r to %r", one.workflow_id, one.was, one.version)
        for run_id in unreadable:
            with tries.one():
                async with self.database.all_tenants("watchdog.hold") as session:
                    if await routing.hold_unreadable(session, run_id, gone_s=self.grace_s):
                        _log.warning("run %s is held until a version lives that can carry it on", run_id)
        for run_id in readable:
            with tries.one():
                async with self.database.all_tenants("watchdog.release") as session:
                    if await routing.let_go_on(session, run_id):
                        _log.warning("run %s goes on: a version lives that can carry it on", run_id)
        tries.end()
