"""Whatever happens to who takes over, no segment stays with somebody who is gone: `surefoot.stranded` has no row."""

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app import engine
from tests.kit import Process, World, Zygote, until
from tests.outside import Outside
from tests.server import Server
from tests.stage import Call, Stage
from transactions.lease import EXIT_LEASE_LOST

LEASE_S = 3.0
SCRIPT: list[list[Call]] = [[("note", {"text": "saved"})], [("send", {"text": "the report"})]]
LONG = {"SUREFOOT_LEASE_S": "60"}
# In the order in which a watchdog passes them, one for each state that it can leave the database in; where one dies the
# next one finds what the one before it left.
POINTS = (
    "watchdog.bury.before_commit",
    "watchdog.cut.before_commit",
    "watchdog.fence.before_commit",
    "watchdog.fence.after_commit",
    "watchdog.before_recover",
    "watchdog.after_recover",
    "watchdog.restart.before_commit",
    "watchdog.restart.after_commit",
)


def test_nothing_is_stranded_whoever_dies_over_the_recovery(stage: Stage) -> None:
    """A frozen worker with runs, a run that the engine has lost, a watchdog killed at every point, then two at once."""
    frozen, run_ids = ruins(stage)
    until("its lease is over", lambda: stage.rows("select 1 from surefoot.workers where lease_until < now()"))
    for point in POINTS:
        mortal = stage.worker(point, **LONG)
        assert mortal.until_it_dies() == -signal.SIGKILL, point
    others = [stage.worker(**LONG), stage.worker(**LONG)]
    complete(stage, run_ids)
    frozen.signal(signal.SIGCONT)
    assert frozen.until_it_dies() == EXIT_LEASE_LOST
    assert [one.exit_code() for one in others] == [None, None]
    nothing_is_left(stage)


def test_nor_when_an_old_worker_drains_while_a_new_one_with_the_same_settings_starts(stage: Stage) -> None:
    old = stage.working(TEST_HANGS="1", SUREFOOT_DRAIN_S="1", **LONG)
    run_ids = [stage.script(*SCRIPT, [("hang", {"how": "waits"})]) for _ in range(3)]
    for _ in run_ids:
        until("it is at all of them", lambda: old.said().count("hangs and waits") == len(run_ids))
    old.signal(signal.SIGTERM)
    run_ids += [stage.script(*SCRIPT) for _ in range(3)]
    stage.worker(SUREFOOT_DRAIN_S="1", **LONG)
    assert old.until_it_dies() == 0
    complete(stage, run_ids)
    nothing_is_left(stage)


def test_nor_when_the_database_restarts_under_the_recovery(restarting: Stage, server: Server) -> None:
    stage = restarting
    dead = stage.working("tool.effect.after_commit", **LONG)
    run_ids = [stage.script(*SCRIPT) for _ in range(3)]
    assert dead.until_it_dies() == -signal.SIGKILL
    others = [
        stage.worker(f"{point}:1:stop", **LONG) for point in ("watchdog.fence.before_commit", "watchdog.before_recover")
    ]
    for one in others:
        one.until_it_stops()
    server.shoot()
    for one in others:
        one.signal(signal.SIGCONT)
    server.start()
    complete(stage, run_ids)
    assert [one.exit_code() for one in others] == [None, None]
    nothing_is_left(stage)


def test_control_where_nothing_is_handed_over_the_view_says_so(stage: Stage) -> None:
    _, run_ids = ruins(stage)
    *at_work, lost = run_ids
    until("its lease is over", lambda: stage.rows("select 1 from surefoot.workers where lease_until < now()"))
    assert {row["run_id"] for row in stranded(stage)} == set(run_ids)
    stage.working(broken=hands_nothing_over, **LONG)
    stage.until_state(lost, "completed")  # its watchdog has been through all of its duties
    left = stranded(stage)
    assert {row["run_id"] for row in left} <= set(at_work) != set()
    assert left != []
    assert all("is dead: lease expired" in row["why"] for row in left)


def ruins(stage: Stage) -> tuple[Process, Sequence[str]]:
    """A worker that was frozen while it was at three runs; and a fourth run, which the engine has lost."""
    frozen = stage.working("tool.transaction.before_commit:3:stop", SUREFOOT_LEASE_S=f"{LEASE_S:g}")
    run_ids = [stage.script(*SCRIPT) for _ in range(3)]
    frozen.until_it_stops()
    lost = stage.script(*SCRIPT)
    stage.rows("delete from dbos.workflow_status where workflow_uuid = %s", f"{lost}:0")
    return frozen, [*run_ids, lost]


def complete(stage: Stage, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        stage.until_state(run_id, "completed")
        stage.until_quiet(run_id)
        assert [note["text"] for note in stage.notes(run_id)] == ["saved"]
    references = [sent.reference for sent in stage.outside.sent]
    assert len(references) == len(set(references)) == len(run_ids)


def nothing_is_left(stage: Stage) -> None:
    assert stranded(stage) == []
    assert stage.rows("select workflow_uuid from dbos.workflow_status where status = 'PENDING'") == []


def stranded(stage: Stage) -> list[dict[str, str]]:
    return stage.rows("select run_id, why from surefoot.stranded")


def hands_nothing_over() -> None:
    async def nothing(executor_id: str) -> Sequence[str]:
        return ()

    engine.recover = nothing


@pytest.fixture
def restarting(server: Server, outside: Outside, tmp_path: Path, zygote: Zygote) -> Iterator[Stage]:
    with Stage(server.joined.url, World(tmp_path), outside, tmp_path, zygote) as running:
        yield running
