"""What a frozen worker has locked is free when its lease is over, whatever it was in the middle of at the server."""

import os
import signal
import threading
import time
from typing import Any

from app import watchdog
from tests.kit import until
from tests.stage import Stage
from transactions import Session, connecting, messages

LEASE_S = 3.0
JITTER_S = 2.0  # of a machine on which other tests run
LEASE = {"SUREFOOT_LEASE_S": f"{LEASE_S:g}"}
# So long that none of them is taken over before the last of them is frozen.
LONGER_S = 6.0
# In the middle of a transaction that has locked the run, its segment, its action or its delivery.
POINTS = (
    "segment.begin.before_commit",
    "tool.transaction.before_commit",
    "tool.effect.before_commit",
    "effect.answered.before_commit",
    "segment.end.before_commit",
)
WAITS = (
    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
    "and query_start < clock_timestamp() - interval '2 seconds'"
)


def test_a_frozen_workers_locks_delay_nobody_beyond_its_lease(stage: Stage) -> None:
    """A person cancels a run that a frozen worker has locked, while nobody else is there."""
    run_ids: list[str] = []
    frozen_at = 0.0
    for point in POINTS:
        frozen = stage.working(f"{point}:1:stop", SUREFOOT_LEASE_S=f"{LONGER_S:g}")
        run_ids.append(stage.script([("note", {"text": "a"})], [("send", {"text": "b"})]))
        frozen.until_it_stops()
        frozen_at = time.monotonic()
    for run_id in run_ids:
        stage.cancel(run_id)
    assert time.monotonic() - frozen_at < LONGER_S + JITTER_S


def test_nor_one_that_is_frozen_while_it_is_sent_what_it_asked_for(stage: Stage) -> None:
    """Its session is not idle, and sends for ever: it is ended with its worker."""
    frozen = stage.working(broken=stops_while_it_reads_a_locked_run, **LEASE)
    run_id = stage.script([("note", {"text": "a"})])
    frozen.until_it_stops()
    frozen_at = time.monotonic()
    stage.working(SUREFOOT_LEASE_S="60")
    stage.until_state(run_id, "completed")
    assert time.monotonic() - frozen_at < 2 * LEASE_S + JITTER_S
    assert [note["text"] for note in stage.notes(run_id)] == ["a"]


def test_control_without_the_servers_patience_ending_it_waits_for_as_long_as_it_is_frozen(stage: Stage) -> None:
    frozen = stage.working("tool.transaction.before_commit:1:stop", broken=may_idle_for_ever, **LEASE)
    run_id = stage.script([("note", {"text": "a"})])
    frozen.until_it_stops()
    cancelling = threading.Thread(target=stage.cancel, args=(run_id,))
    cancelling.start()
    cancelling.join(LEASE_S + JITTER_S)
    assert cancelling.is_alive()
    frozen.kill()
    cancelling.join()


def test_control_one_whose_session_is_not_ended_keeps_its_run_from_the_others(stage: Stage) -> None:
    frozen = stage.working(broken=stops_while_it_reads_a_locked_run, **LEASE)
    run_id = stage.script([("note", {"text": "a"})])
    frozen.until_it_stops()
    stage.working(broken=ends_no_sessions, SUREFOOT_LEASE_S="60")
    until("who took it over waits for the frozen one", lambda: stage.rows(WAITS))
    assert stage.rows("select 1 from surefoot.workers where state = 'dead'")
    assert stage.state(run_id) != "completed"


def stops_while_it_reads_a_locked_run() -> None:
    """More than the line holds: the server waits until somebody reads it."""

    async def large(session: Session, run_id: str, *, cut: int) -> list[Any]:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        connection = await session.connection()
        await connection.exec_driver_sql("select repeat('x', 1000000), pg_sleep(0.02) from generate_series(1, 200)")
        raise AssertionError("it was to be stopped")

    messages.before = large


def may_idle_for_ever() -> None:
    def within(self: connecting.Limits, lease_s: float) -> connecting.Limits:
        return connecting.Limits(idle_in_transaction_s=3600)

    connecting.Limits.within = within


def ends_no_sessions() -> None:
    async def nothing(self: watchdog.Watchdog, found: Any) -> None:
        return

    watchdog.Watchdog._cut_off = nothing
