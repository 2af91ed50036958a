"""Many entries to three consumers by two relays, with or without a kill every second, judged and measured.

    python -m app.crashtest.outbox_run [--entries 10000] [--keys 100] [--kills] [--seed 1] [--json FILE]

On a Postgres of its own. The entries are inserted raw, one commit each with its three deliveries, and that rate is
compared with the rate at which they are delivered. Prints JSON; ends with 1 when an entry is missing, was done twice or
came out of order, or, without kills, when the delivery has less than half the rate.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app import engine
from app.crashtest.fork import Forks
from app.crashtest.ground import environment
from app.crashtest.outbox_relay import VARIABLE
from app.crashtest.outbox_sink import Sink, Take, findings
from app.crashtest.place import database_server
from transactions import DEFAULT_TENANT, Database, migrate
from transactions.clones import clone

RATIO_MIN = 0.5
_CONSUMERS = ("first", "second", "third")
_RELAYS = 2
_KILL_EVERY_S = 1.0
_LOOK_S = 0.1
_PATIENCE_S = 900.0
_SHOWN = 20
_TABLE = (
    "create table if not exists public.outbox_effects (n bigint generated always as identity, entry_id text not null,"
    " key text not null, seq bigint not null)"
)
_ENTRY = (
    "insert into surefoot.outbox_entries (entry_id, tenant, topic, key, key_seq, payload)"
    " values (%s, 'default', 'news', %s, %s, %s)"
)
_DELIVERIES = (
    "insert into surefoot.outbox_deliveries (entry_id, of_topic, of_key, of_seq, consumer, tenant, state, attempts_max)"
    " select %s, 'news', %s, %s, c, 'default', 'pending', 20 from unnest(%s::text[]) c"
)
_LEFT = "select count(*) as n from surefoot.outbox_deliveries where state in ('pending', 'claimed')"
_DELIVERED = "select count(*) as n from surefoot.outbox_deliveries where state = 'delivered'"


@dataclass(frozen=True, slots=True)
class Options:
    """kill_every_s: None for no kills. env: of the first relay, more than the others have. before: of every relay."""

    entries: int = 10_000
    keys: int = 100
    kill_every_s: float | None = None
    seed: int = 1
    forgets: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    before: Sequence[str] = ()


@dataclass(slots=True)
class Result:
    """Rates in entries per second: each with its three deliveries. `takes`: calls of consumers."""

    entries: int
    keys: int
    kills: int = 0
    takes: int = 0
    inserted_per_s: float = 0.0
    delivered_per_s: float = 0.0
    ratio: float = 0.0
    findings: list[str] = field(default_factory=list[str])


async def play(url: str, folder: Path, options: Options) -> Result:
    """On a migrated database with the table of the local consumer; files and logs are left in `folder`."""
    database = Database(url)
    try:
        async with Forks(environment(None), folder / "forks.log") as forks:
            return await _Run(database, folder, options, forks).play()
    finally:
        await database.close()


class _Run:
    def __init__(self, database: Database, folder: Path, options: Options, forks: Forks) -> None:
        self._database = database
        self._folder = folder
        self._options = options
        self._forks = forks
        self._pids: list[int] = []
        # Without kills all of them are files: what is measured is the relay, and not what a consumer writes here.
        self._local = None if options.kill_every_s is None else _CONSUMERS[-1]
        self._sinks = {name: Sink(folder / f"{name}.sqlite") for name in _CONSUMERS if name != self._local}

    async def play(self) -> Result:
        options = self._options
        result = Result(options.entries, options.keys)
        entries = [(f"e{n}", f"k{n % options.keys}", n // options.keys + 1) for n in range(options.entries)]
        began = time.monotonic()
        for entry_id, key, seq in entries:
            await self._insert(entry_id, key, seq)
        result.inserted_per_s = options.entries / (time.monotonic() - began)
        began = time.monotonic()
        for n in range(_RELAYS):
            await self._relay(options.env if n == 0 else {})
        result.kills = await self._until_delivered(began)
        result.delivered_per_s = options.entries / (time.monotonic() - began)
        result.ratio = result.delivered_per_s / result.inserted_per_s
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        takes = await self._takes()
        result.takes = sum(map(len, takes.values()))
        result.findings = list(findings(takes, frozenset(entry_id for entry_id, _, _ in entries)))
        if (delivered := await self._count(_DELIVERED)) != options.entries * len(_CONSUMERS):
            result.findings.append(f"{delivered} deliveries are delivered of {options.entries * len(_CONSUMERS)}")
        return result

    async def _insert(self, entry_id: str, key: str, seq: int) -> None:
        payload = json.dumps({"key": key, "seq": seq})
        async with self._database.transaction("outbox run", DEFAULT_TENANT) as session:
            connection = await session.connection()
            await connection.exec_driver_sql(_ENTRY, (entry_id, key, seq, payload))
            await connection.exec_driver_sql(_DELIVERIES, (entry_id, key, seq, list(_CONSUMERS)))

    async def _relay(self, env: Mapping[str, str]) -> None:
        said = {
            "sinks": {name: str(sink.file) for name, sink in self._sinks.items()},
            "forgets": self._options.forgets,
            "local": self._local,
            "in_flight_max": max(1, self._options.keys // _RELAYS),  # so that no relay can have all the heads
        }
        everything = {**environment(None), "DATABASE_URL": self._database.url, VARIABLE: json.dumps(said), **env}
        pid = await self._forks.fork(
            "app.crashtest.outbox_relay",
            (),
            env=everything,
            log=self._folder / "relays.log",
            before=self._options.before,
        )
        self._pids.append(pid)

    async def _until_delivered(self, began: float) -> int:
        """How many relays were killed, or died by themselves; each was replaced. Raises TimeoutError."""
        chance = random.Random(self._options.seed)  # noqa: S311  a reproducible choice, no secret
        kills, next_kill = 0, began + (self._options.kill_every_s or _PATIENCE_S)
        while await self._count(_LEFT):
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            if now - began > _PATIENCE_S:
                raise TimeoutError(f"not delivered within {_PATIENCE_S:g} s: see {self._folder}")
            if self._options.kill_every_s is not None and now >= next_kill:
                next_kill += self._options.kill_every_s
                os.kill(chance.choice(self._pids), signal.SIGKILL)
            for pid in [pid for pid in self._pids if await self._forks.exit_code(pid) is not None]:
                self._pids.remove(pid)
                kills += 1
                await self._relay({})
        return kills

    async def _takes(self) -> Mapping[str, Sequence[Take]]:
        takes = {name: sink.takes() for name, sink in self._sinks.items()}
        for sink in self._sinks.values():
            sink.close()
        if self._local is not None:
            rows = await self._database.query(
                DEFAULT_TENANT, "select entry_id, key, seq from public.outbox_effects order by n"
            )
            takes[self._local] = [Take(row["entry_id"], row["key"], row["seq"], effect=True) for row in rows]
        return takes

    async def _count(self, sql: str) -> int:
        return int((await self._database.query(DEFAULT_TENANT, sql))[0]["n"])


async def _played(options: Options, folder: Path, server_url: str) -> Result:
    async with clone(server_url, "outbox_run", template="template0") as url:
        await asyncio.to_thread(prepare, url)
        return await play(url, folder, options)


def prepare(url: str) -> None:
    """Migrate, with the table that the local consumer writes to."""
    migrate.migrate(url, engine_schema=engine.migrate, tables=[_TABLE])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m app.crashtest.outbox_run", description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--kills", action="store_true", help="kill one of the relays every second")
    parser.add_argument("--seed", type=int, default=1, help="which of them")
    parser.add_argument("--json", type=Path, help="write the result there too")
    given = parser.parse_args()
    options = Options(given.entries, given.keys, _KILL_EVERY_S if given.kills else None, given.seed)
    with tempfile.TemporaryDirectory(prefix="surefoot-outbox-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with database_server(None) as server:
            result = asyncio.run(_played(options, folder, server.url))
    found = result.findings
    shown: dict[str, Any] = {**asdict(result), "findings": found[:_SHOWN], "findings_in_all": len(found)}
    text = json.dumps(shown, indent=2)
    sys.stdout.write(text + "\n")
    if given.json is not None:
        given.json.write_text(text + "\n")
    slow = options.kill_every_s is None and result.ratio < RATIO_MIN
    return 1 if found or slow else 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
