"""Workers at full load with retention on: does memory, a connection or a table still grow when it has run for a
while?

    python -m app.crashtest.soak --minutes 30 [--workers 3] [--json FILE] [--html FILE]

On a Postgres of its own, or on a new database of the server of `--database-url`. Policies are so short that rows reach
their age many times over. Measured are the memory of each worker, connections, and the size of every table and index;
it ends with 1 when the slope of one is over 1 % in 10 minutes, by least squares over the last two thirds, or when in a
tenth of those no run finished or none was removed. Less than 20 minutes tell little: everything grows until it is as
old as it is kept.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import engine, wiring
from app.crashtest import soak_page
from app.crashtest.fork import Forks
from app.crashtest.ground import announce, environment
from app.crashtest.place import database_server
from app.crashtest.soak_agent import soak
from app.crashtest.soak_slopes import Report, Samples, Unit
from app.settings import Settings
from app.surefoot import Surefoot
from transactions import DEFAULT_TENANT, Conflict, NotFound, SurefootError
from transactions.clones import clone

_AGENTS, _CONSUMERS = "app.crashtest.soak_agent:soak", "app.crashtest.soak_agent:heard"
_KEPT_MAX_S, _KEPT_MIN_S = 120.0, 5.0
_TIMES_OVER = 15  # so many times in a soak is everything as old as it is kept
_SAMPLES = 180
_SAMPLE_S_MIN = 1.0
_LOOK_S = 0.25
_LOOKS_MAX = 400
_OPEN_A_WORKER = 40  # runs that wait for a worker or are executed: more than it has room for
_UNDO_EVERY = 11 * 4
_POOL = 4
_QUEUED = "select count(*) as n from surefoot.runs where state in ('queued', 'running')"
_OVER = "select run_id, input ->> 'n' as n from surefoot.runs where state = 'completed' order by ended_at desc limit 5"
_SIZES = """
select case c.relkind when 'i' then 'index ' else 'table ' end || n.nspname || '.' || c.relname as name,
       case c.relkind when 'i' then pg_relation_size(c.oid) else pg_table_size(c.oid) end as bytes
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname in ('surefoot', 'dbos', 'soak') and c.relkind in ('r', 'i') order by 1"""
_CONNECTIONS = (
    "select count(*) as n from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
)
_COUNTS = """
select (select coalesce(sum(items), 0) from surefoot.removals where kind = 'runs') as removed,
       (select count(*) from surefoot.runs) as kept,
       (select count(*) from surefoot.runs where ended_at is not null) as over"""


@dataclass(frozen=True, slots=True)
class Options:
    minutes: float = 30.0
    workers: int = 3

    @property
    def keep_s(self) -> float:
        return max(_KEPT_MIN_S, min(_KEPT_MAX_S, self.minutes * 60 / _TIMES_OVER))

    @property
    def sample_s(self) -> float:
        return max(_SAMPLE_S_MIN, self.minutes * 60 / _SAMPLES)

    @property
    def env(self) -> Mapping[str, str]:
        """Policies of a worker: what belongs to a run goes before it does."""
        short = f"{self.keep_s / 2:g}"
        kinds = {"ENGINE": short, "MESSAGES": short, "EVENTS": short, "OUTBOX": short, "ARTIFACTS": short}
        long = dict.fromkeys(("RUNS", "KEYS", "WORKERS", "TOKENS"), f"{self.keep_s:g}")
        return {f"SUREFOOT_KEEP_{kind}_S": age for kind, age in (kinds | long).items()} | {"SUREFOOT_RETENTION_S": "1"}


@dataclass(slots=True)
class _Soak:
    surefoot: Surefoot
    forks: Forks
    folder: Path
    options: Options
    pids: list[int] = field(default_factory=list[int])
    samples: Samples = field(default_factory=Samples)
    findings: list[str] = field(default_factory=list[str])
    started: int = 0

    async def play(self) -> Report:
        env = {**environment(_AGENTS), "SUREFOOT_CONSUMERS": _CONSUMERS, **self.options.env}
        env["DATABASE_URL"] = self.surefoot.database_url
        for n in range(self.options.workers):
            log = self.folder / f"worker-{n}.log"
            self.pids.append(await self.forks.fork("app.cli", ("worker",), env=env, log=log))
        loops = [asyncio.create_task(loop()) for loop in (self._start, self._agree, self._undo)]
        try:
            await self._measure()
        finally:
            for loop in loops:
                loop.cancel()
            ended = await asyncio.gather(*loops, return_exceptions=True)
        self.findings += [f"the load ended: {error}" for error in ended if isinstance(error, Exception)]
        await self._stop()
        options = self.options
        return Report(options.minutes, options.workers, options.keep_s, self.samples, self.findings)

    # The load.

    async def _start(self) -> None:
        """As many as the workers have room for, and more, at any moment."""
        want = _OPEN_A_WORKER * self.options.workers
        while True:
            queued = (await self._rows(_QUEUED))[0]["n"]
            for _ in range(want - queued):
                await self.surefoot.start(soak, {"n": self.started})
                self.started += 1
            await asyncio.sleep(_LOOK_S)

    async def _agree(self) -> None:
        """A manager who agrees to everything."""
        await self.surefoot.set_principal("ada", roles=["approver", "manager"])
        ada = await self.surefoot.acting_as("ada")
        while True:
            for asked in await ada.pending_approvals():
                with suppress(Conflict, NotFound):
                    await ada.decide(asked["approval_id"], "approve")
            await asyncio.sleep(_LOOK_S)

    async def _undo(self) -> None:
        """Somebody who has things undone, now and then."""
        while True:
            for row in await self._rows(_OVER):
                if int(row["n"]) % _UNDO_EVERY == 0:
                    with suppress(Conflict, NotFound):
                        await self.surefoot.undo(row["run_id"])
            await asyncio.sleep(_LOOK_S)

    # What is measured.

    async def _measure(self) -> None:
        began = time.monotonic()
        while (at_s := time.monotonic() - began) < self.options.minutes * 60:
            for pid in list(self.pids):
                if (code := await self.forks.exit_code(pid)) is not None:
                    self.findings.append(f"worker {pid} ended with {code}: see its log in {self.folder}")
                    self.pids.remove(pid)
            if self.findings:
                return
            self.samples.add(at_s, await self._sizes(), await self._counts())
            await asyncio.sleep(max(0.0, self.options.sample_s - (time.monotonic() - began - at_s)))

    async def _sizes(self) -> dict[str, tuple[Unit, float]]:
        found: dict[str, tuple[Unit, float]] = {
            f"memory of worker {n}": ("bytes", _memory(pid)) for n, pid in enumerate(self.pids)
        }
        found["connections"] = ("connections", (await self._rows(_CONNECTIONS))[0]["n"])
        sizes = {row["name"]: float(row["bytes"]) for row in await self._rows(_SIZES)}
        for kind, words in (("table", "all tables"), ("index", "all indexes")):
            found[words] = ("bytes", sum(size for name, size in sizes.items() if name.startswith(kind)))
        each: dict[str, tuple[Unit, float]] = {name: ("bytes", size) for name, size in sizes.items()}
        return found | each

    async def _counts(self) -> dict[str, float]:
        row = (await self._rows(_COUNTS))[0]
        removed = float(row["removed"])
        return {"started": float(self.started), "finished": removed + row["over"], "removed": removed}

    async def _rows(self, sql: str) -> Sequence[Mapping[str, Any]]:
        return await self.surefoot.database.query(DEFAULT_TENANT, sql)

    async def _stop(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        for pid in self.pids:
            if (code := await self._ended(pid)) != 0:
                how = "does not drain" if code is None else f"drained with {code}"
                self.findings.append(f"worker {pid} {how}: see its log in {self.folder}")

    async def _ended(self, pid: int) -> int | None:
        for _ in range(_LOOKS_MAX):
            if (code := await self.forks.exit_code(pid)) is not None:
                return code
            await asyncio.sleep(_LOOK_S)
        return None


def _memory(pid: int) -> float:
    """Bytes in RAM."""
    with suppress(OSError):
        return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0.0


async def play(url: str, folder: Path, options: Options) -> Report:
    """On an empty database; logs are left in `folder`."""
    await asyncio.to_thread(wiring.migrate_database, url, [soak])
    await asyncio.to_thread(engine.register_queue, url, poll_s=0.2)
    await announce(url, [soak])
    surefoot = Surefoot(url, [soak], settings=Settings())
    try:
        async with Forks(environment(_AGENTS), folder / "forks.log") as forks:
            return await _Soak(surefoot, forks, folder, options).play()
    finally:
        await surefoot.close()


def told(report: Report) -> str:
    """The steepest, the totals, and what it all comes to."""
    series = sorted(report.samples.series, key=lambda one: -one.slope)
    shown = [one for n, one in enumerate(series) if n < 20 or not one.name.startswith(("table", "index"))]
    lines = [f"{one.slope:+9.2f} %  {soak_page.told(one, one.growth):>14} in 10 minutes  {one.name}" for one in shown]
    return "\n".join([*lines, soak_page.sentence(report)])


async def _played(server_url: str, folder: Path, options: Options) -> Report:
    async with clone(server_url, f"soak_{os.getpid()}", template="template0") as url:
        return await play(url, folder, options)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m app.crashtest.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--database-url", help="a server to make a database on; by default one of its own")
    parser.add_argument("--json", type=Path, help="write everything that was measured there")
    parser.add_argument("--html", type=Path, help="write a page with charts there")
    parser.add_argument("--folder", type=Path, help="keep the logs there")
    given = parser.parse_args()
    options = Options(given.minutes, given.workers)
    with tempfile.TemporaryDirectory(prefix="surefoot-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        logs = given.folder or folder
        logs.mkdir(parents=True, exist_ok=True)
        try:
            with database_server(given.database_url) as server:
                report = asyncio.run(_played(server.url, logs, options))
        except SurefootError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    if given.json is not None:
        given.json.write_text(json.dumps(report.as_json()) + "\n")
    if given.html is not None:
        soak_page.write(report, given.html)
    sys.stdout.write(told(report) + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
