"""Writers of artifacts that are killed at every point of a write, beside a sweeper that is killed too, and judged.

    python -m app.crashtest.artifact_run [--seeds 1000] [--store folder|s3|postgres] [--first 1] [--json FILE]

On a Postgres of its own, and a folder or a SeaweedFS of its own. Each seed has two writers and a sweeper, which takes
everything at once, also what is being written. Each writer, and the sweeper, dies at a failpoint or at any moment, or
lives. When all are gone a last sweep is made, and then: every reference has to verify, and nothing else may be left in
the store, nor a staged row. Prints JSON; ends with 1 when something is wrong.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app import engine
from app.crashtest.artifact_writer import VARIABLE, Part
from app.crashtest.fork import Forks
from app.crashtest.ground import environment
from app.crashtest.place import database_server
from app.crashtest.s3_server import s3_server
from transactions import DEFAULT_TENANT, ArtifactStore, Database, migrate
from transactions.clones import clone
from transactions.failpoints import ARMED, LOG
from transactions.stores import POSTGRES, Store
from transactions.stores.folder import FolderStore

COMMIT = ("tool.transaction.before_commit", "tool.transaction.after_commit")
WRITE = (
    "artifact.stage.before_commit",
    "artifact.stage.after_commit",
    "artifact.before_put",
    "artifact.after_put",
    "artifact.after_verify",
    *COMMIT,
)
FOLDER = ("folder.before_write", "folder.before_rename", "folder.after_rename")
SWEEP = (
    "artifact.sweep.before_commit",
    "artifact.sweep.after_commit",
    "artifact.before_delete",
    "artifact.after_delete",
    "artifact.look.before_commit",
)
_WRITERS = 2
_WRITES = 3
_TAKES_S = 0.5
_LOOK_S = 0.005
_PATIENCE_S = 60.0
_SHOWN = 20
_RUN = (
    "insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash, state, event_seq)"
    " values (%s, 'default', 'artifact run', 'nobody', '{}', 'h', 'queued', 0)"
)
_ACTION = (
    "insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind,"
    " safety, request, request_hash, gated, attempts_max, attempt_s)"
    " values (%s, 'default', %s, 0, 1, %s, 'c', 'artifact run', 'write', 'transaction', 'transaction', '{}', 'h',"
    " false, 1, 1)"
)
_ROWS = "select name, version, sha256, size_bytes, media_type, store, object, content from surefoot.artifacts"
_SETTLED = "lock table surefoot.staged_objects in share mode"
_STAGED = "select object from surefoot.staged_objects"


@dataclass(frozen=True, slots=True)
class Options:
    """setting: SUREFOOT_ARTIFACTS. points: where writers die. before: called first in each process."""

    setting: str
    points: Sequence[str]
    seeds: Sequence[int]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    before: Sequence[str] = ()
    sweeps: bool = True
    each_point: bool = False  # the writers of the n-th seed die at the n-th point, and its sweeper at one of its own


@dataclass(slots=True)
class Result:
    """What was measured. `died_at`: how many processes died at each point; `at_any_moment`: killed by the clock."""

    seeds: int = 0
    writers: int = 0
    finished: int = 0
    died_at: dict[str, int] = field(default_factory=dict[str, int])
    at_any_moment: int = 0
    references: int = 0
    removed: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list[str])


async def play(url: str, folder: Path, options: Options) -> Result:
    """On a migrated database. Logs are left in `folder`."""
    os.environ.update(options.env)
    database, store = Database(url), ArtifactStore.from_setting(options.setting, url)
    began = time.monotonic()
    try:
        async with Forks({**environment(None), **options.env}, folder / "forks.log") as forks:
            run = _Run(database, store, folder, options, forks)
            for seed in options.seeds:
                await run.play(seed)
            await run.judge("at the end", everything=True)
    finally:
        await store.close()
        await database.close()
    run.result.seconds = time.monotonic() - began
    return run.result


class _Run:
    def __init__(self, database: Database, store: ArtifactStore, folder: Path, options: Options, forks: Forks) -> None:
        self._database = database
        self._store = store
        self._folder = folder
        self._options = options
        self._forks = forks
        self.result = Result()

    async def play(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311  a reproducible choice, no secret
        parts = await self._prepare(seed, chance)
        running: dict[int, float] = {}  # pid: when it is killed
        died = self._folder / "died.log"
        died.unlink(missing_ok=True)
        for part in parts:
            points = SWEEP if part.role == "sweeper" else self._options.points
            if self._options.each_point:
                env, at = {ARMED: f"{points[seed % len(points)]}:1", LOG: str(died)}, float("inf")
            else:
                env, at = self._fate(chance, points, died)
            running[await self._fork(part, env)] = at
        sweepers = [pid for pid, part in zip(running, parts, strict=True) if part.role == "sweeper"]
        await self._until_over(running, sweepers)
        if died.exists():
            for line in died.read_text().splitlines():
                point = line.split()[1]
                self.result.died_at[point] = self.result.died_at.get(point, 0) + 1
        self.result.seeds += 1
        self.result.writers += _WRITERS
        async with self._database.all_tenants("artifact run") as session:
            # What the dead had begun: until the server has noticed that they are gone, and has rolled it back.
            await (await session.connection()).exec_driver_sql(_SETTLED)
        if self._options.sweeps:
            swept = await self._store.sweep(older_than_s=0)
            self.result.removed += sum(one.staged + one.orphans for one in swept)
        await self.judge(f"seed {seed}", everything=False, actions=[part.action_id for part in parts])

    async def _prepare(self, seed: int, chance: random.Random) -> Sequence[Part]:
        run_id = f"seed-{seed}"
        parts = [
            Part("writer", run_id, f"{run_id}/1/{n}:write", chance.randrange(2**32), _WRITES, 0.0)
            for n in range(_WRITERS)
        ]
        async with self._database.transaction("artifact run", DEFAULT_TENANT) as session:
            connection = await session.connection()
            await connection.exec_driver_sql(_RUN, (run_id,))
            for n, part in enumerate(parts):
                await connection.exec_driver_sql(_ACTION, (part.action_id, run_id, n))
        if not self._store.stores:
            return parts
        # One that takes what was staged this very moment would let no writer come to its end.
        return [*parts, Part("sweeper", run_id, "", 0, 0, chance.choice((0.02, 0.05, 0.2)))]

    def _fate(self, chance: random.Random, points: Sequence[str], died: Path) -> tuple[dict[str, str], float]:
        """Dies at the n-th passage of a point, or at any moment, or lives."""
        match chance.choice(("point", "point", "moment", "lives")):
            case "point":
                return {ARMED: f"{chance.choice(points)}:{chance.randint(1, _WRITES)}", LOG: str(died)}, float("inf")
            case "moment":
                return {}, time.monotonic() + chance.random() * _TAKES_S
            case _:
                return {}, float("inf")

    async def _fork(self, part: Part, env: Mapping[str, str]) -> int:
        everything = {
            **environment(None),
            **self._options.env,
            "DATABASE_URL": self._database.url,
            "SUREFOOT_ARTIFACTS": self._options.setting,
            VARIABLE: json.dumps(asdict(part)),
            **env,
        }
        log = self._folder / "writers.log"
        module = "app.crashtest.artifact_writer"
        return await self._forks.fork(module, (), env=everything, log=log, before=self._options.before)

    async def _until_over(self, running: dict[int, float], sweepers: Sequence[int]) -> None:
        """Until no writer lives; then the sweeper is killed too. Raises TimeoutError."""
        until = time.monotonic() + _PATIENCE_S
        while running:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            over = running.keys() <= set(sweepers)
            for pid, at in list(running.items()):
                if over or now >= at:
                    self.result.at_any_moment += not over
                    running[pid] = float("inf")
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if (code := await self._forks.exit_code(pid)) is not None:
                    del running[pid]
                    self.result.finished += code == 0
                    if code not in (0, -signal.SIGKILL):
                        said = (self._folder / "writers.log").read_text().strip().splitlines()[-1:]
                        self.result.findings.append(f"a process ended with {code}: {said}")
            if now > until:
                raise TimeoutError(f"a writer did not come to its end: see {self._folder}/writers.log")

    async def judge(self, when: str, *, everything: bool, actions: Sequence[str] = ()) -> None:
        """Every reference verifies, of these actions or of all; and there is nothing beside them in the store."""
        query = self._database.query
        where = "" if everything else " where action_id = any(:actions)"
        rows = await query(DEFAULT_TENANT, _ROWS + where, **({} if everything else {"actions": [*actions]}))
        by_name = {store.name: store for store in self._store.stores}
        for row in rows:
            ref = f"{when}: {row['name']} version {row['version']}"
            try:
                content = row["content"] if row["object"] is None else await by_name[row["store"]].get(row["object"])
            except LookupError:
                self.result.findings.append(f"{ref} references {row['object']}, which is not there")
                continue
            if hashlib.sha256(content).hexdigest() != row["sha256"] or len(content) != row["size_bytes"]:
                self.result.findings.append(f"{ref} does not verify")
        if everything:
            self.result.references = len(rows)
        for row in await query(DEFAULT_TENANT, _STAGED):
            self.result.findings.append(f"{when}: {row['object']} is still staged")
        referenced = {row["object"] for row in await query(DEFAULT_TENANT, "select object from surefoot.artifacts")}
        for store in self._store.stores:
            left = set(await _objects(self._database, store)) - referenced
            self.result.findings += [f"{when}: {name} is in {store.name} and nobody knows it" for name in sorted(left)]


async def _objects(database: Database, store: Store) -> Sequence[str]:
    """All that is in the store for this database, unfinished files too."""
    deployment = (await database.query(DEFAULT_TENANT, "select surefoot.deployment() as it"))[0]["it"]
    if isinstance(store, FolderStore):
        folder = store.folder / deployment
        found = await asyncio.to_thread(lambda: [path.name for path in folder.iterdir()] if folder.exists() else [])
        return [f"{deployment}/{name}" for name in found]
    return [name async for batch in store.older_than(deployment, -3600.0) for name in batch]


async def played(options: Options, folder: Path, server_url: str) -> Result:
    async with clone(server_url, "artifact_run", template="template0") as url:
        await asyncio.to_thread(prepare, url)
        return await play(url, folder, options)


def prepare(url: str) -> None:
    migrate.migrate(url, engine_schema=engine.migrate)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m app.crashtest.artifact_run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--store", choices=("folder", "s3", "postgres"), default="folder")
    parser.add_argument("--json", type=Path, help="write the result there too")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    with (
        tempfile.TemporaryDirectory(prefix="surefoot-artifacts-", ignore_cleanup_errors=True) as name,
        ExitStack() as up,
    ):
        folder = Path(name)
        server = up.enter_context(database_server(None))
        options = Options(POSTGRES, COMMIT, seeds)
        if given.store == "folder":
            (folder / "store").mkdir()
            options = Options((folder / "store").as_uri(), (*WRITE, *FOLDER), seeds)
        elif given.store == "s3":
            s3 = up.enter_context(s3_server(folder))
            options = Options(s3.url, WRITE, seeds, s3.env)
        result = asyncio.run(played(options, folder, server.url))
    found = result.findings
    shown = {"store": given.store, **asdict(result), "findings": found[:_SHOWN], "findings_in_all": len(found)}
    text = json.dumps(shown, indent=2)
    sys.stdout.write(text + "\n")
    if given.json is not None:
        given.json.write_text(text + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
