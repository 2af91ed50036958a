"""One writer of artifacts, or one sweeper, in a process of its own: `python -m app.crashtest.artifact_writer`.

From the environment: DATABASE_URL, SUREFOOT_ARTIFACTS, and SUREFOOT_ARTIFACT_RUN as JSON, a `Part`. A writer saves
through `Tx`, as a tool does, and ends; a sweeper ends by being killed.
"""

import asyncio
import json
import os
import random
from dataclasses import dataclass
from typing import Any, Literal

from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ArtifactStore,
    Database,
    Run,
    RunId,
    Tx,
    until_committed,
)

VARIABLE = "SUREFOOT_ARTIFACT_RUN"
NAME = "artifact-of-{action_id}"
_PAUSE_S = 0.01
_SMALL_BYTES_MAX = 64 * 1024
_LARGE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """`seed` chooses the bytes; a sweeper takes what is older than `older_than_s`."""

    role: Literal["writer", "sweeper"]
    run_id: str
    action_id: str
    seed: int
    writes: int
    older_than_s: float


async def write(database: Database, store: ArtifactStore, part: Part) -> None:
    """So many versions of one name, each in a transaction of its own, again while something is away."""

    async def query(sql: str, /, **parameters: object) -> Any:
        return await database.query(DEFAULT_TENANT, sql, **parameters)

    chance = random.Random(part.seed)  # noqa: S311  reproducible bytes, no secret
    run = Run(RunId(part.run_id), DEFAULT_TENANT, "artifact run", None, "nobody", query, store)
    for _ in range(part.writes):
        content = chance.randbytes(chance.randrange(chance.choice((1, _SMALL_BYTES_MAX, _LARGE_BYTES_MAX))))

        async def once(content: bytes = content) -> None:
            async with database.transaction("tool.transaction", DEFAULT_TENANT) as session:
                tx = Tx(None, run, ActionId(part.action_id), session)
                name = NAME.format(action_id=part.action_id)
                await tx.save_artifact(name, content, media_type="application/octet-stream")

        await until_committed(once, lambda: None)


async def sweep(store: ArtifactStore, part: Part) -> None:
    while True:
        await store.sweep(older_than_s=part.older_than_s)
        await asyncio.sleep(_PAUSE_S)


async def main() -> None:
    url, part = os.environ["DATABASE_URL"], Part(**json.loads(os.environ[VARIABLE]))
    store = ArtifactStore.from_setting(os.environ["SUREFOOT_ARTIFACTS"], url)
    if part.role == "sweeper":
        await sweep(store, part)
    database = Database(url)
    await write(database, store, part)
    await database.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
