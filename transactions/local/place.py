"""Where a folder's cluster lives on disk, and where its socket is.

    FOLDER/postgres/          lock, clients, alive       ours
    FOLDER/postgres/cluster/  data, server.log, socket   of the user that runs Postgres

For root that is another user, `nobody`. A folder that `nobody` cannot enter keeps its mode: its cluster lives in
/var/lib/surefoot/HASH, and a note in the folder says so.
"""

import contextlib
import hashlib
import os
import pwd
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from transactions.local.account import Account
from transactions.local.errors import LocalPostgresError

STORE = Path("/var/lib/surefoot")
NOTE = "postgres-is-in.txt"
SOCKET_BYTES_MAX = 100  # the system's limit is 107 on Linux, 103 on macOS
SOCKET_SAFE = re.compile(r"[A-Za-z0-9_./ -]+")  # libpq takes a comma in `host` for a list
SOCKET_NAME = ".s.PGSQL.5432"


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of one cluster. `note` is where its move is noted, None when it lives in its folder."""

    root: Path
    note: Path | None = None

    @property
    def lock(self) -> Path:
        """Held while somebody starts, stops or looks: one at a time."""
        return self.root / "lock"

    @property
    def clients(self) -> Path:
        """Held shared by every process that has joined."""
        return self.root / "clients"

    @property
    def alive(self) -> Path:
        """Held by Postgres itself: every program of it inherits the descriptor. Free means: none of them runs."""
        return self.root / "alive"

    @property
    def cluster(self) -> Path:
        return self.root / "cluster"

    @property
    def data(self) -> Path:
        return self.cluster / "data"

    @property
    def log(self) -> Path:
        return self.cluster / "server.log"


def find(home: Path, account: Account) -> Place:
    """The place of this folder's cluster, with the folder for its locks made."""
    home.mkdir(parents=True, exist_ok=True)
    note = home / NOTE
    if note.exists():
        return _noted(note, account)
    place = Place(home / "postgres")
    if account.switched and not place.root.exists() and not account.can_enter(home):
        place = Place(make_store() / hashlib.sha256(os.fsencode(home)).hexdigest()[:12], note)
    _make(place.root, 0o711 if account.switched else 0o700)
    _require_owner(place.root, os.geteuid())
    return place


def prepare(place: Place, account: Account) -> None:
    """Make what is missing; the caller holds `place.lock`. Raises when the cluster is not ours to use."""
    if place.note is not None and not place.note.exists():
        _write_note(place, place.note)
    if not account.can_enter(place.root):
        raise LocalPostgresError(
            f"user {account.name}, who runs Postgres for root, cannot enter {place.root}: "
            "give the folders above it mode 711, choose another folder, or set DATABASE_URL"
        )
    _make(place.cluster, 0o700)
    if account.switched and place.cluster.lstat().st_uid == 0:
        os.chown(place.cluster, account.uid, account.gid, follow_symlinks=False)
    _require_owner(place.cluster, account.uid)


def make_store() -> Path:
    """The folder for what root cannot keep beside the user's files."""
    STORE.parent.mkdir(parents=True, exist_ok=True)
    _make(STORE, 0o755)
    return STORE


def socket_tag(place: Place, account: Account) -> str:
    """The name of the socket's folder, when it is not the cluster's: one for each cluster."""
    return f"surefoot-{account.uid}-{hashlib.sha256(os.fsencode(place.cluster)).hexdigest()[:12]}"


def socket_folder(place: Place, account: Account) -> Path:
    """The cluster's own folder when a socket can be there, else a folder under the temporary one (not made yet)."""
    if _takes_socket(place.cluster):
        return place.cluster
    tag = socket_tag(place, account)
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - a private folder in it, checked when made
        if _takes_socket(base / tag) and account.can_enter(base):
            return base / tag
    raise LocalPostgresError(
        f"no folder for the database's socket was found for {place.cluster}: "
        "set TMPDIR to a short path that every user can enter, choose a shorter folder, or set DATABASE_URL"
    )


def make_socket_folder(folder: Path, account: Account) -> None:
    _make(folder, 0o700)
    if account.switched and folder.lstat().st_uid == 0:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    _require_owner(folder, account.uid)


def _takes_socket(folder: Path) -> bool:
    fits = len(os.fsencode(folder / SOCKET_NAME)) <= SOCKET_BYTES_MAX
    return fits and SOCKET_SAFE.fullmatch(str(folder)) is not None


def _noted(note: Path, account: Account) -> Place:
    root = Path(note.read_text().strip())
    if not account.switched:
        raise LocalPostgresError(
            f"root made this database ({note} says it is in {root}): run as root, choose another folder, "
            "or set DATABASE_URL"
        )
    if root.parent != STORE or not root.is_dir():  # never an empty database in place of a lost one
        raise LocalPostgresError(
            f"{note} says that the database is in {root}, which is not there: "
            f"bring {root} back, or remove {note} to begin with an empty database"
        )
    return Place(root, note)


def _write_note(place: Place, note: Path) -> None:
    if place.data.exists():
        raise LocalPostgresError(
            f"{place.root} holds the database of an earlier {note.parent}: remove {place.root} to begin with an empty "
            f"database, or write its path into {note} to use it again"
        )
    draft = note.with_suffix(".new")
    draft.write_text(f"{place.root}\n")
    draft.replace(note)


def _make(folder: Path, mode: int) -> None:
    """A folder of exactly this mode, unless another user owns it. Finishes what a killed process has begun."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=mode)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise LocalPostgresError(f"{folder} is not a folder, and one is needed here: move it away and try again")
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != mode:
        folder.chmod(mode)  # whatever the umask says


def _require_owner(folder: Path, uid: int) -> None:
    owner = folder.lstat().st_uid
    if owner != uid:
        raise LocalPostgresError(
            f"{folder} belongs to user {_name(owner)}, not to {_name(uid)}: "
            "run as the user who made it, choose another folder, or set DATABASE_URL"
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
