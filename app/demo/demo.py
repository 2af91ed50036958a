"""One performance of the demo: check, build the stage, play, judge, tell."""

import json
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from app import wiring
from app.demo import acts, barrage, story
from app.demo.facts import collect
from app.demo.judge import judge
from app.demo.options import Options, checked
from app.demo.records import Records
from app.demo.scene import Scene
from app.demo.stage import Stage, until
from app.demo.summary import summarize
from app.loading import load_agents
from app.settings import Settings
from transactions import InvalidInput
from transactions.local import LocalPostgres

KILLS_IN_STORY = 3


def play(options: Options) -> bool:
    """Perform, print, write what was found. True when every claim holds. Raises SurefootError, LocalPostgresError."""
    say = story.Teller(began := time.monotonic())
    given = checked(options)
    settings = Settings.from_env()
    with _ending_well(), _database(settings) as (url, local), Records(url) as records:
        _alone(records)
        folder = _folder(settings.home)
        say.opening(given, None if local is None else local.data, folder)
        with Stage(folder, url) as stage:
            scene = Scene(stage, records, given, say)
            stage.open_world()
            _clear(scene)
            kills = _perform(scene, options, say)
            facts = collect(scene, kills_planned=kills)
        claims = judge(facts)
        summary = summarize(records, folder, facts, claims, seconds=time.monotonic() - began)
        if options.kills is None:
            say.timelines(records, facts)
        else:
            say.kills(facts)
        say.ending(facts, claims, summary)
    if options.json is not None:
        options.json.write_text(json.dumps(summary.as_json(options), indent=2) + "\n")
    return all(claim.holds for claim in claims)


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


def _clear(scene: Scene) -> None:
    """Put aside what demos that were broken off have left: let it come to rest, then cancel it."""
    left = scene.records.left_by_demos()
    if any(row["state"] in ("queued", "running") for row in left):
        scene.tell(f"left unfinished by earlier demos: {len(left)} (a worker brings them to rest first)")
        worker = scene.stage.worker()
        until(
            "the runs of earlier demos come to rest",
            lambda: all(row["state"] not in ("queued", "running") for row in scene.records.left_by_demos()),
        )
        worker.stop()
    for row in scene.records.left_by_demos():
        scene.records.cancel(row["run_id"])


def _perform(scene: Scene, options: Options, say: story.Teller) -> int:
    """Both acts; how many kills were planned."""
    say.heading("A plain pydantic-ai loop, killed right after the publishing service has committed")
    acts.plain_loop(scene)
    say.heading("The same agent on Surefoot")
    if options.kills is None:
        acts.three_kills(scene, hold=options.hold)
        return KILLS_IN_STORY
    barrage.random_kills(scene, kills=options.kills, seed=options.seed or 0)
    acts.finish(scene, SUREFOOT_STALLS_MAX=barrage.STALLS_MAX)
    return options.kills


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
