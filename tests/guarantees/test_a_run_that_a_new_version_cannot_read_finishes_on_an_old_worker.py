"""A version says which states of runs it can read; others are left to workers that can, else held with the reason."""

from dataclasses import replace

from tests.builds import SOON, begun_by, build, drained, events, reason, until_let_go_on
from tests.stage import Stage
from transactions import readers

LONG = [[("send_patiently", {"text": "long"})], [("note", {"text": "after"})]]
# Refused, for what one version has asked about is asked about anew by another.
ASKED = ([("gated_note", {"text": "asked"})], [("note", {"text": "told"})])
NOTE = [("note", {"text": "new"})]
MESSAGES = "select seq, message from surefoot.model_messages where run_id = %s order by seq"


def test_a_run_that_a_new_version_cannot_read_finishes_on_an_old_worker(stage: Stage) -> None:
    old = stage.working(**SOON)
    waiting, left = stage.script(*ASKED), stage.script(*ASKED)
    with stage.outside.held():
        running = stage.script(*LONG)
        for run_id in (waiting, left):
            stage.until_state(run_id, "waiting")
        stage.outside.until_sent(1)
        stage.working(**build("INCOMPATIBLE"), **SOON)
        stage.approve(waiting, "reject")
        new = stage.script(NOTE)
        for run_id in (waiting, new):
            stage.until_state(run_id, "completed")
    stage.until_state(running, "completed")
    assert begun_by(stage, new) == ["3"]
    assert begun_by(stage, waiting) == ["1", "1"]
    assert begun_by(stage, running) == ["1"]
    # Without an old worker it is held, and not executed; with one again it goes on by itself.
    drained(old)
    stage.approve(left, "reject")
    stage.until_state(left, "held")
    assert reason(stage, left).startswith(
        "its state is of version 1, which no version that has a worker can read, and no"
    )
    assert "scripted=1" in reason(stage, left)
    assert begun_by(stage, left) == ["1"]
    stage.working(**SOON)
    until_let_go_on(stage, left)
    assert begun_by(stage, left) == ["1", "1"]
    assert events(stage, left, "run.released") == [{"by": "watchdog"}]


def test_a_moment_without_an_old_worker_holds_nothing(stage: Stage) -> None:
    """As a rolling restart of the old ones makes one, while the new ones look at every tick."""
    old = stage.working()
    run_id = stage.script(*ASKED)
    stage.until_state(run_id, "waiting")
    stage.working(**build("INCOMPATIBLE"))
    drained(old)
    stage.approve(run_id, "reject")
    for _ in range(2):
        stage.until_state(stage.script(NOTE), "completed")
    assert stage.state(run_id) == "queued"
    stage.working()
    stage.until_state(run_id, "completed")
    assert events(stage, run_id, "run.held") == []


def test_a_state_that_can_be_migrated_is_once_with_the_commit_that_takes_it_up(stage: Stage) -> None:
    old = stage.working()
    run_id = stage.script(*ASKED)
    stage.until_state(run_id, "waiting")
    drained(old)
    mortal = stage.working("segment.begin.before_commit", **build("MIGRATING"))
    stage.approve(run_id, "reject")
    assert mortal.until_it_dies() == -9
    assert events(stage, run_id, "run.migrated") == []
    stage.working(**build("MIGRATING"))
    stage.until_state(run_id, "completed")
    assert [note["text"] for note in stage.notes(run_id)] == ["told", "migrated"]
    [told] = events(stage, run_id, "run.migrated")
    assert (told["from"], told["to"], told["messages"]) == (1, 2, 1)
    [kept] = stage.rows("select input, messages from surefoot.state_migrations where run_id = %s", run_id)
    assert len(kept["input"]["turns"]) == 2
    assert [changed["seq"] for changed in kept["messages"]] == [0]
    assert stage.rows("select state_version from surefoot.runs where run_id = %s", run_id) == [{"state_version": 2}]


def test_a_migration_that_cannot_be_is_refused_and_changes_nothing(stage: Stage) -> None:
    old = stage.working()
    run_id = stage.script(*ASKED)
    stage.until_state(run_id, "waiting")
    drained(old)
    before = stage.rows(MESSAGES, run_id)
    stage.working(**build("SPOILING"), **SOON)
    stage.approve(run_id, "reject")
    stage.until_state(run_id, "held")
    assert reason(stage, run_id).startswith(
        "its state could not be migrated from version 1 to 2: it made 1 messages of 2"
    )
    assert (
        stage.rows("select seq, message from surefoot.model_messages where run_id = %s order by seq", run_id) == before
    )
    stage.working()
    until_let_go_on(stage, run_id)
    assert [note["text"] for note in stage.notes(run_id)] == ["told"]


def test_control_where_nobody_asks_what_can_be_read_the_new_version_has_it(stage: Stage) -> None:
    old = stage.working()
    run_id = stage.script(*ASKED)
    stage.until_state(run_id, "waiting")
    drained(old)
    stage.working(broken=everything_is_read, **build("INCOMPATIBLE"), **SOON)
    stage.approve(run_id, "reject")
    stage.until_state(run_id, "completed")
    assert begun_by(stage, run_id) == ["1", "3"]


def everything_is_read() -> None:
    from app import worker

    once = worker.serves
    worker.serves = lambda agents: [replace(one, reads=frozenset({1, 2})) for one in once(agents)]
    admit = readers.admit

    async def all_admitted(session, run, segment, serving):  # type: ignore[no-untyped-def]
        agents = {name: replace(reader, as_is=frozenset({1, 2})) for name, reader in serving.agents.items()}
        return await admit(session, run, segment, replace(serving, agents=agents))

    readers.admit = all_admitted
