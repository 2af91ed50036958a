"""Where a performance takes place: its database, its folder, and what was left there by others. Ends well, always."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from app import wiring
from app.demo.records import Records
from app.demo.scene import Telling
from app.demo.stage import Stage, until
from app.loading import load_agents
from app.settings import Settings
from transactions import InvalidInput
from transactions.local import LocalPostgres


@dataclass(frozen=True, slots=True)
class House:
    """A database with a current schema, and a new folder. `embedded`: where the database lies when it is ours."""

    url: str
    embedded: Path | None
    records: Records
    folder: Path


@contextmanager
def open_house() -> Generator[House]:
    """As the environment says. Raises InvalidInput when somebody else is at work there, and LocalPostgresError."""
    settings = Settings.from_env()
    with _ending_well(), _database(settings) as (url, local), Records(url) as records:
        _alone(records)
        yield House(url, None if local is None else local.data, records, _folder(settings.home))


def clear(stage: Stage, records: Records, tell: Telling) -> None:
    """Put aside what demos that were broken off have left: let it come to rest, then cancel it."""
    left = records.left_by_demos()
    if any(row["state"] in ("queued", "running", "cancelling") for row in left):
        tell(f"left unfinished by earlier demos: {len(left)} (a worker brings them to rest first)")
        worker = stage.worker()
        until(
            "the runs of earlier demos come to rest",
            lambda: all(row["state"] not in ("queued", "running", "cancelling") for row in records.left_by_demos()),
        )
        worker.stop()
    for row in records.left_by_demos():
        records.cancel(row["run_id"])


def _alone(records: Records) -> None:
    """Raises InvalidInput when another worker would take our runs, or ours would take somebody's."""
    advice = "give the demo a database of its own, with SUREFOOT_HOME=FOLDER or DATABASE_URL"
    if others := records.other_workers():
        raise InvalidInput(
            f"A worker ({others[0]}) serves this database and would take the demo's runs: stop it, or {advice}."
        )
    if work := records.other_peoples_work():
        raise InvalidInput(
            f"{work} runs on this database are unfinished, and the demo's workers would carry them out against its own "
            f"publishing service and mailbox: let them finish first, or {advice}."
        )


def _folder(home: Path) -> Path:
    """A new folder for everything this performance writes. Raises InvalidInput when it cannot be made."""
    folder = home.expanduser().absolute() / "demo" / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be made ({error.strerror}): run in a folder that is yours, or set SUREFOOT_HOME."
        ) from error
    return folder


@contextmanager
def _database(settings: Settings) -> Generator[tuple[str, LocalPostgres | None]]:
    """A database with a current schema."""
    url, local = wiring.open_database(settings)
    try:
        wiring.migrate_database(url, load_agents(None))
        yield url, local
    finally:
        if local is not None:
            local.leave()


@contextmanager
def _ending_well() -> Generator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: through every clean-up."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
