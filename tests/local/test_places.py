"""Where a folder's database is: odd names, root, other users, and folders that have gone."""

import os
import pwd
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from transactions.local import LocalPostgresError, join

Start = Callable[..., Any]
NOTE = "postgres-is-in.txt"
ODD = ["with spaces", "a,comma", "Ümläut", "x" * 120, "$HOME `id` \"quoted\" 'too' \\"]


@pytest.mark.parametrize("name", ODD, ids=["spaces", "comma", "umlaut", "long", "shell"])
def test_odd_folder_names(name: str, base: Path, uid: int | None, start_member: Start) -> None:
    if uid is not None:
        os.chown(base, uid, uid)
    one, other = start_member(base / name, uid), start_member(base / name, uid)
    url: str = one.ask("join")["url"]

    assert other.ask("join")["url"] == url
    assert one.value("select 1") == 1
    assert [each.ask("leave")["stopped"] for each in (one, other)] == [False, True]
    socket = Path(parse_qs(urlsplit(url).query)["host"][0])
    assert base / name in socket.parents or not socket.exists()


def test_a_joiner_with_another_temporary_folder_finds_the_socket(base: Path, home: Path, start_member: Start) -> None:
    odd = home.rename(base / "a,b")
    one, other = (start_member(odd, env={"TMPDIR": str(make(base / name, 0o755))}) for name in ("t1", "t2"))
    url = one.ask("join")["url"]

    assert str(base / "t1").replace("/", "%2F") in url
    assert other.ask("join")["url"] == url
    assert [each.ask("leave")["stopped"] for each in (one, other)] == [False, True]


def test_a_relative_path_and_a_link_mean_the_same_folder(
    base: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "link").symlink_to(home)
    monkeypatch.chdir(base)
    with join(Path("home")) as one, join(base / "link") as other:
        assert one.url == other.url


def test_a_user_id_without_a_name_gets_a_clear_error(as_root: None, base: Path, start_member: Start) -> None:
    unnamed = next(uid for uid in range(54321, 60000) if not is_named(uid))
    os.chown(base, unnamed, unnamed)

    error = start_member(base / "home", unnamed).ask("join")["error"]
    assert f"user id {unnamed} has no entry" in error
    assert error.endswith("run as a listed user, or set DATABASE_URL")


def test_a_folder_that_cannot_be_written_gets_a_clear_error(as_root: None, base: Path, start_member: Start) -> None:
    error = start_member(base / "home", 65534).ask("join")["error"]
    assert "Permission denied" in error
    assert error.endswith("choose another folder, or set DATABASE_URL")


def test_roots_folder_is_refused_to_others(as_root: None, home: Path, start_member: Start) -> None:
    error = start_member(home, 65534).ask("join")["error"]
    assert "belongs to user root, not to nobody" in error


def test_a_users_folder_is_refused_to_root(as_root: None, base: Path) -> None:
    make(base / "home", 0o755)
    os.chown(make(base / "home/postgres", 0o700), 1, 1)

    with pytest.raises(LocalPostgresError, match=r"belongs to user \w+, not to root"):
        join(base / "home")


def test_a_link_in_place_of_the_database_is_refused(base: Path) -> None:
    make(base / "home", 0o755)
    (base / "home/postgres").symlink_to(make(base / "elsewhere", 0o755))

    with pytest.raises(LocalPostgresError, match="is not a folder"):
        join(base / "home")
    assert not any((base / "elsewhere").iterdir())


def test_root_with_a_closed_home_gets_its_database_elsewhere(as_root: None, base: Path) -> None:
    closed = make(base / "closed", 0o700)
    with join(closed / "home") as postgres:
        place = Path((closed / "home" / NOTE).read_text().strip())
        assert place.parent == Path("/var/lib/surefoot")
        assert postgres.data == place / "cluster/data"
        assert stat.S_IMODE(postgres.data.parent.stat().st_mode) == 0o700
    with join(closed / "home") as again:
        assert again.data == postgres.data
    closed.chmod(0o755)
    with join(closed / "home") as opened:
        assert opened.data == postgres.data
    closed.chmod(0o700)

    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert [path.name for path in (closed / "home").iterdir()] == [NOTE]


def test_root_ignores_the_umask(as_root: None, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o077)
    try:
        with join(base / "home") as postgres:
            assert postgres.data.is_dir()
        shutil.rmtree(Path((base / "home" / NOTE).read_text().strip()))
    finally:
        os.umask(before)


def test_a_lost_or_left_database_is_neither_replaced_nor_revived_in_silence(as_root: None, base: Path) -> None:
    closed = make(base / "closed", 0o700)
    join(closed / "home").leave()
    note = closed / "home" / NOTE
    text = note.read_text()

    shutil.rmtree(closed / "home")
    with pytest.raises(LocalPostgresError, match="holds the database of an earlier"):
        join(closed / "home")
    note.write_text(text)
    join(closed / "home").leave()

    shutil.rmtree(Path(text.strip()))
    with pytest.raises(LocalPostgresError, match="which is not there"):
        join(closed / "home")


def test_a_note_leads_only_into_the_store(as_root: None, base: Path) -> None:
    make(base / "home", 0o755)
    (base / "home" / NOTE).write_text(f"{make(base / 'elsewhere', 0o755)}\n")

    with pytest.raises(LocalPostgresError, match="which is not there"):
        join(base / "home")


def make(folder: Path, mode: int) -> Path:
    folder.mkdir()
    folder.chmod(mode)
    return folder


def is_named(uid: int) -> bool:
    return any(entry.pw_uid == uid for entry in pwd.getpwall())
