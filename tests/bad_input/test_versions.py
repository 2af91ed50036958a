"""Versions, and the way of a run: what cannot be is refused in one sentence, and nothing is changed by it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from app import Surefoot
from app.acting import Acting
from tests.bad_input.sentences import rows, sentence
from tests.forked import surefoot as command
from tests.people import dump
from tests.races.scenes import VERSION, open_scene
from transactions import Conflict, Forbidden, InvalidInput, NotFound, Principal, Role, RunId, RunState, Tenant, steering
from transactions.segments import Ending

Clone = Callable[[str], AbstractContextManager[str]]
ADA = Principal(Tenant("default"), "ada", frozenset({Role.OPERATOR}), authenticated=True)


@pytest.fixture(scope="module")
def runs(clone: Clone) -> Iterator[tuple[str, dict[str, str]]]:
    """A queued run, one that is over and one that is cancelling, of a version whose workers live."""

    async def make(url: str) -> dict[str, str]:
        async with open_scene(url) as scene:
            over, cancelling = await scene.running(), await scene.running()
            await scene.end(over, Ending(state=RunState.COMPLETED, turns=0, usage={}, output=1))
            await scene.cancel(cancelling.run_id)
            return {"queued": await scene.start(), "over": over.run_id, "cancelling": cancelling.run_id}

    with clone("versions") as url:
        yield url, asyncio.run(make(url))


@pytest.fixture
def changes_nothing(runs: tuple[str, Any]) -> Iterator[None]:
    before = dump(runs[0])
    yield
    assert dump(runs[0]) == before


async def asked(url: str, call: Callable[[Acting], Any], who: Principal = ADA) -> Any:
    surefoot = Surefoot(url, [])
    try:
        return await call(surefoot.acting_for(who))
    finally:
        await surefoot.close()


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize(
    ("call", "refusal", "words"),
    [
        (lambda who, its: who.hold(its["over"], reason="x"), Conflict, "is completed: there is nothing left to hold"),
        (lambda who, its: who.hold(its["cancelling"], reason="x"), Conflict, "is cancelling: there is nothing left"),
        (lambda who, its: who.hold("nope", reason="x"), NotFound, "No run nope: see `surefoot runs list`"),
        (lambda who, its: who.hold(its["queued"], reason=" "), InvalidInput, "Say why the run is held"),
        (lambda who, its: who.hold(its["queued"], reason="x" * 4001), InvalidInput, "the limit is 4000"),
        (lambda who, its: who.hold(its["queued"], reason="a\0"), InvalidInput, "NUL character"),
        (lambda who, its: who.move(its["over"]), Conflict, "is completed: there is nothing left to hold or to move"),
        (lambda who, its: who.move(its["queued"], to="nope"), NotFound, "No application version 'nope' was ever"),
        (lambda who, its: who.move(its["queued"], to="a\0"), InvalidInput, "NUL character"),
        (lambda who, its: who.move_all(begun_by="nope"), NotFound, "No application version 'nope' was ever"),
        (lambda who, its: who.move_all(begun_by=VERSION, to="nope"), NotFound, "see `surefoot versions list`"),
        (lambda who, its: who.use_version("nope"), NotFound, "see `surefoot versions list`"),
        (lambda who, its: who.release(its["queued"]), Conflict, "is queued, not held: there is nothing to release"),
    ],
)
async def test_what_cannot_be_is_refused(
    runs: tuple[str, dict[str, str]], call: Any, refusal: type[Exception], words: str
) -> None:
    url, its = runs
    with pytest.raises(refusal, match=words):
        await asked(url, lambda who: call(who, its))


@pytest.mark.usefixtures("changes_nothing")
async def test_what_is_removed_or_over_meanwhile_does_not_keep_the_others_from_being_moved(
    runs: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, its = runs
    found = [RunId("nope"), RunId(its["over"]), RunId(its["cancelling"])]

    async def begun_by(*_: Any, after: RunId | None, **__: Any) -> list[RunId]:
        return [] if after else found

    monkeypatch.setattr(steering, "begun_by", begun_by)
    moved = await asked(url, lambda who: who.move_all(begun_by=VERSION))
    assert (moved.run_ids, list(moved.refused)) == ([], found)
    assert "No run nope" in moved.refused["nope"]


@pytest.mark.usefixtures("changes_nothing")
async def test_what_is_the_deployment_s_is_not_of_a_tenant_s_operator(runs: tuple[str, Any]) -> None:
    amy = Principal(Tenant("acme"), "amy", frozenset({Role.ADMIN}), authenticated=True)
    with pytest.raises(Forbidden, match="This is the deployment's, and amy is of tenant acme"):
        await asked(runs[0], lambda who: who.use_version(VERSION), amy)


@pytest.mark.usefixtures("changes_nothing")
@pytest.mark.parametrize(
    "words", ["runs migrate", "runs migrate x --all", "runs migrate --all", "runs migrate --from x"]
)
def test_a_command_that_names_neither_a_run_nor_a_version_says_how(runs: tuple[str, Any], words: str) -> None:
    said = sentence(command(*words.split(), env={"DATABASE_URL": runs[0]}))
    assert said == "Name one run, or every run of a version: `surefoot runs migrate --all --from VERSION`."


def test_a_run_is_held_moved_and_released_by_commands(runs: tuple[str, dict[str, str]]) -> None:
    url, its = runs
    env = {"DATABASE_URL": url}
    run_id = its["queued"]

    def says(*words: str) -> str:
        done = command(*words, env=env)
        assert done.returncode == 0, done
        return done.stdout

    assert says("runs", "hold", run_id, "--reason", "look first") == f"held {run_id}\n"
    assert "unauthenticated: look first" in says("runs", "show", run_id)
    [number] = rows(url, "select n from surefoot.versions where version = %s", VERSION)
    assert says("runs", "migrate", run_id, "--to", str(number["n"])) == f"{run_id}: next is version {VERSION}\n"
    assert says("runs", "release", run_id) == f"released {run_id}\n"
    assert says("runs", "migrate", "--all", "--from", VERSION).endswith("0 moved\n")
    listed = says("versions", "list")
    assert f"{number['n']}  {VERSION}  3 workers" in listed
    assert "report 1: writes state 1; current since " in listed
