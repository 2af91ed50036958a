"""A writer and the sweeper at the same object, in every order; and who sweeps when."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app import Surefoot
from app.sweeper import Sweeper
from steps import results
from steps.bench import Bench
from steps.weighing import large
from tests.forked import until_async
from tests.shelf import opened, owner, save
from transactions import (
    DEFAULT_TENANT,
    ArtifactStore,
    Run,
    StoreFailed,
    StoreUnavailable,
    Wakeups,
    WorkerId,
    artifacts,
    canonical_json,
)
from transactions.artifact_store import Swept
from transactions.artifacts import Stored
from transactions.stores.folder import FolderStore

CONTENT = b"some bytes"


@pytest.fixture
async def kept(database_url: str, tmp_path: Path) -> AsyncIterator[Surefoot]:
    (tmp_path / "store").mkdir()
    it = opened(database_url, (tmp_path / "store").as_uri())
    await save(it, "first", b"first")
    yield it
    await it.close()


def files(kept: Surefoot) -> list[Path]:
    assert isinstance(kept.store.writes_to, FolderStore)
    return sorted(path for path in kept.store.writes_to.folder.rglob("*") if path.is_file())


async def reference(kept: Surefoot, stored: Stored, *, before_commit: object = None) -> None:
    """The commit of a writer, which waits for `before_commit` (an Event) with what it has done."""
    [(run_id, action_id)] = owner(kept.database_url, "select run_id, action_id from surefoot.actions")
    async with kept.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        await artifacts.save(
            session,
            tenant=DEFAULT_TENANT,
            run_id=run_id,
            action_id=action_id,
            name="report",
            content=stored,
            media_type="text/plain",
        )
        if isinstance(before_commit, asyncio.Event):
            await before_commit.wait()


async def test_what_was_swept_cannot_be_referenced(kept: Surefoot) -> None:
    stored = await kept.store.stage(DEFAULT_TENANT, CONTENT)
    [swept] = await kept.sweep_artifacts(older_than_s=0)
    assert swept == Swept(swept.store, staged=1, orphans=0)
    with pytest.raises(StoreUnavailable, match="was swept before it was referenced"):
        await reference(kept, stored)
    assert len(files(kept)) == 1
    assert owner(kept.database_url, "select name from surefoot.artifacts") == [("first",)]


async def test_what_is_being_referenced_is_passed_over(kept: Surefoot) -> None:
    stored = await kept.store.stage(DEFAULT_TENANT, CONTENT)
    go_on = asyncio.Event()
    writer = asyncio.create_task(reference(kept, stored, before_commit=go_on))
    written = "select 1 from pg_locks where relation = 'surefoot.artifacts'::regclass and mode = 'RowExclusiveLock'"
    await until_async(lambda: owner(kept.database_url, written) != [])
    [swept] = await kept.sweep_artifacts(older_than_s=0)
    assert (swept.staged, swept.orphans) == (0, 0)
    go_on.set()
    await writer
    assert (await kept.sweep_artifacts(older_than_s=0))[0] == swept
    assert await kept.artifact("report", 1) == CONTENT


async def test_what_is_younger_than_the_limit_stays(kept: Surefoot) -> None:
    stored = await kept.store.stage(DEFAULT_TENANT, CONTENT)
    [swept] = await kept.sweep_artifacts()
    assert (swept.staged, swept.orphans) == (0, 0)
    await reference(kept, stored)
    assert await kept.artifact("report", 1) == CONTENT


async def test_what_nobody_knows_is_removed_and_what_is_of_another_database_is_not(kept: Surefoot) -> None:
    store = kept.store.writes_to
    assert isinstance(store, FolderStore)
    [(deployment,)] = owner(kept.database_url, "select surefoot.deployment()")
    await store.put(f"{deployment}/abc", CONTENT)
    await store.put("def/abc", CONTENT)
    (store.folder / deployment / "abd.part").write_bytes(b"half")
    [swept] = await kept.sweep_artifacts(older_than_s=0)
    assert (swept.staged, swept.orphans) == (0, 2)
    assert [path.name for path in files(kept) if path.parent.name != deployment] == ["abc"]
    assert len(files(kept)) == 2


async def test_only_what_stands_for_the_very_result_is_replaced_by_it(kept: Surefoot) -> None:
    """A value that looks like it, or names another call's, is the user's own."""
    [(run_id, action_id)] = owner(kept.database_url, "select run_id, action_id from surefoot.actions")
    whole = [f"line {n}" for n in range(9)]
    found = large(whole, inline_bytes=1)
    assert found is not None

    async def query(sql: str, /, **parameters: object) -> Any:
        return await kept.database.query(DEFAULT_TENANT, sql, **parameters)

    run = Run(run_id, DEFAULT_TENANT, "a", None, "nobody", query, kept.store)
    for _ in range(2):  # the answer to the first commit was lost
        stored = await kept.store.stage(DEFAULT_TENANT, found.content)
        async with kept.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
            small = await results.save(session, run, action_id, found, stored, is_action=True)
    assert isinstance(small, dict)
    assert (small["version"], small["head"]) == (1, canonical_json(whole))
    wakeups = Wakeups(kept.database_url)
    bench = Bench(kept.database, {}, WorkerId("w"), wakeups, lambda: None, lambda _: None, kept.store)
    for undoes, value, expected in (
        (action_id, small, whole),
        ("another action", small, small),
        (action_id, {**small, "version": 2}, {**small, "version": 2}),
        (action_id, {**small, "sha256": "0" * 64}, {**small, "sha256": "0" * 64}),
        (action_id, 7, 7),
        (None, small, small),
    ):
        action = {"undoes": undoes, "request": {"done": value}}
        assert await results.restored(bench, DEFAULT_TENANT, action) == {"done": expected}


async def test_two_sweepers_at_once_and_again(kept: Surefoot) -> None:
    for _ in range(20):
        await kept.store.stage(DEFAULT_TENANT, CONTENT)
    found = await asyncio.gather(*(kept.sweep_artifacts(older_than_s=0) for _ in range(3)))
    assert sum(swept.staged for [swept] in found) == 20
    assert len(files(kept)) == 1


async def test_the_workers_together_sweep_at_one_pace(kept: Surefoot) -> None:
    store = kept.store.sweeping()
    sweepers = [Sweeper(store, 0.0, lambda: None, every_s=3600.0) for _ in range(2)]
    await kept.store.stage(DEFAULT_TENANT, CONTENT)
    await asyncio.gather(*(sweeper.run_once() for sweeper in sweepers))
    assert len(files(kept)) == 1
    await kept.store.stage(DEFAULT_TENANT, CONTENT)
    await sweepers[0].run_once()
    assert len(files(kept)) == 2  # it is not due
    await replace(sweepers[1], every_s=0.0).run_once()
    assert len(files(kept)) == 1
    await store.close()


async def test_where_all_is_in_postgres_there_is_nothing_to_sweep(database_url: str) -> None:
    await Sweeper(ArtifactStore(), 0.0, lambda: None).run()


class Forgetful(FolderStore):
    """Says that it has written, and has other bytes."""

    async def put(self, name: str, content: bytes) -> None:
        await super().put(name, content[:-1])


async def test_a_store_that_keeps_other_bytes_is_told_and_nothing_is_referenced(kept: Surefoot) -> None:
    assert isinstance(kept.store.writes_to, FolderStore)
    forgetful = Forgetful(kept.store.writes_to.folder)
    kept.store = replace(kept.store, writes_to=forgetful, stores=[forgetful])
    with pytest.raises(StoreFailed, match="for what was written to it as"):
        await save(kept, "report", CONTENT)
    assert owner(kept.database_url, "select name from surefoot.artifacts") == [("first",)]
