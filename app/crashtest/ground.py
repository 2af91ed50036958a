"""Where cases are played: the warmed process, the template they are cloned from, and the pace of this machine."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app import engine, wiring
from app.crashtest.fork import Forks
from app.crashtest.subject import Subject
from app.serving import application_version, serves
from steps import DurableAgent
from transactions import Database, versions
from transactions.clones import clone

_PRODUCT = ("SUREFOOT_", "DATABASE_URL", "DBOS_", "PG")
_SAMPLES = 400
_SAMPLE_S = 0.001
_TIMES_JITTER = 10.0
_LEASE_S_MIN = 3.0
_RUNS_IN_LEASE = 2.5
_RUNS_A_CORE = 2.0  # so many at once, most of them waiting, take no longer than one alone
_LEASE_S_ENOUGH = 12.0  # from a little less on, transactions may take as long as with any lease
_POLL_S_MIN = 0.2
_STUCK_S = 25.0  # more than a mail may take
_SLACK_S = 5.0
_LONG_S = 10.0
STALLS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a case, in seconds.

    `stuck_s`: a run of which nothing is heard for so long has stopped for good. `leave_after_s`: when a worker is asked
    to leave, if it is.
    """

    jitter_s: float
    lease_s: float
    poll_s: float
    stuck_s: float
    leave_after_s: float

    @classmethod
    def measured(cls, jitter_s: float, run_s: float, *, at_once: int = 1) -> "Pace":
        """Lease and polls at least ten times the jitter, so that nothing expires for want of a core.

        run_s: how long an undisturbed run takes alone; at_once: how many there will be. A transaction may take over
        half a lease, also when all cores are busy with other cases, so a lease lasts for more than two such runs, up to
        12 s.
        """
        times = _TIMES_JITTER * jitter_s
        crowd = max(1.0, at_once / (_RUNS_A_CORE * (os.cpu_count() or 1)))
        lease_s = max(_LEASE_S_MIN, times, min(_RUNS_IN_LEASE * run_s * crowd, _LEASE_S_ENOUGH))
        poll_s = min(max(_POLL_S_MIN, times), lease_s / 5)
        return cls(jitter_s, lease_s, poll_s, _STUCK_S + 2 * lease_s, run_s / 2)

    def patient(self, attempt_s: float) -> "Pace":
        """That waits for attempts of effects which may take so long, before absence is believed, and a lease."""
        return replace(self, stuck_s=max(self.stuck_s, attempt_s + 2 * self.lease_s + _SLACK_S))

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "SUREFOOT_LEASE_S": f"{self.lease_s:.3f}",
            "SUREFOOT_WATCHDOG_S": f"{self.poll_s:.3f}",
            "SUREFOOT_QUEUE_POLL_S": f"{self.poll_s:.3f}",
            "SUREFOOT_RELAY_POLL_S": f"{2 * self.poll_s:.3f}",
            "SUREFOOT_STALLS_MAX": str(STALLS_MAX),
        }


async def jitter_s() -> float:
    """How late this machine is, at the worst of some hundred times, for something that is due in a millisecond."""
    worst = 0.0
    for _ in range(_SAMPLES):
        due = time.monotonic() + _SAMPLE_S
        await asyncio.sleep(_SAMPLE_S)
        worst = max(worst, time.monotonic() - due)
    return worst


def unhurried(jitter_s: float) -> Pace:
    """For the run that is measured."""
    return Pace.measured(jitter_s, _LONG_S)


@dataclass(frozen=True, slots=True)
class Ground:
    """What the cases of a session share. Databases are clones of `template` on the server of `server_url`.

    `restart`: end that server at once and start it again; None when it is not ours.
    """

    folder: Path
    server_url: str
    template: str
    forks: Forks
    subject: Subject
    agents: Sequence[DurableAgent[Any]]
    pace: Pace
    restart: Callable[[], Awaitable[None]] | None = None


def environment(agents: str | None) -> dict[str, str]:
    """This process's own environment without what configures Surefoot or Postgres, and with these agents."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRODUCT)}
    return kept | ({"SUREFOOT_AGENTS": agents} if agents else {})


@asynccontextmanager
async def template(
    server_url: str, name: str, agents: Sequence[DurableAgent[Any]], *, base: str = "template0"
) -> AsyncGenerator[str]:
    """A migrated database where the agents are announced, so that runs can start before any worker does; its name."""
    async with clone(server_url, name, template=base) as url:
        await asyncio.to_thread(wiring.migrate_database, url, agents)
        await asyncio.to_thread(engine.register_queue, url, poll_s=_POLL_S_MIN)
        await announce(url, agents)
        yield name


async def announce(url: str, agents: Sequence[DurableAgent[Any]]) -> None:
    """What a worker's start says of its agents."""
    database = Database(url)
    try:
        async with database.all_tenants("worker.register") as session:
            by_name = {agent.name: agent for agent in agents}
            await versions.announce(session, application_version(agents, None), serves(by_name))
            await versions.begin(session, application_version(agents, None))
    finally:
        await database.close()
