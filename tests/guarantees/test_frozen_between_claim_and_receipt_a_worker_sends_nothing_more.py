"""Frozen at every point there is between the claim of an effect and its receipt, and woken after its run went on.

It writes nothing, claims nothing, sends nothing, and ends. One window is left, and counted apart: between the last look
at the lease and the first byte a send needs no more permission; who is stopped there for as long as a lease may send.
"""

import signal

from app.watchdog import Watchdog
from tests.guarantees.test_a_worker_that_lost_its_lease_ends import everything
from tests.killed import left_alone
from tests.kit import Process
from tests.stage import Call, Stage
from transactions.lease import EXIT_LEASE_LOST

LEASE = {"SUREFOOT_LEASE_S": "4"}
SCRIPT: list[list[Call]] = [[("send", {"text": "the report"})]]
FIRST, LAST = "tool.effect.before_commit:1", "effect.answered.after_commit:1"
WINDOW = "effect.before_send"


def test_frozen_between_claim_and_receipt_a_worker_sends_nothing_more(stage: Stage) -> None:
    frozen: dict[str, Process] = {}
    run_ids: dict[str, str] = {}
    for point in points(stage):
        frozen[point] = stage.working(f"{point}:stop", broken=watches_nobody, **LEASE)
        stage.outside.busy = 1  # the first attempt is turned away, so that there is a claim of its own
        run_ids[point] = stage.script(*SCRIPT)
        frozen[point].until_it_stops()
    stage.outside.busy = 0
    others = stage.working(SUREFOOT_LEASE_S="60")
    for run_id in run_ids.values():
        stage.until_state(run_id, "completed")
        stage.until_quiet(run_id)
    others.kill()
    stage.script(*SCRIPT)  # there for whoever claims it
    before, sent = everything(stage), len(stage.outside.sent)
    for worker in frozen.values():
        worker.signal(signal.SIGCONT)
    assert [worker.until_it_dies() for worker in frozen.values()] == [EXIT_LEASE_LOST] * len(frozen)
    stage.until_nothing_is_written()
    assert everything(stage) == before
    in_the_window = {run_ids[point] for point in frozen if point.startswith(WINDOW)}
    assert {one.reference.partition("/")[0] for one in stage.outside.sent[sent:]} <= in_the_window
    references = [one.reference for one in stage.outside.sent[:sent]]
    assert len(references) == len(set(references)) == len(run_ids) + 1


def points(stage: Stage) -> list[str]:
    """All points that a run left alone passes from its effect's claim to its receipt, each at one of its passages."""
    stage.outside.busy = 1
    _, passages = left_alone(stage, SCRIPT)
    within = passages[passages.index(FIRST) : passages.index(LAST) + 1]
    assert {"effect.claim.before_commit:1", f"{WINDOW}:2", "effect.after_send:1"} <= set(within)
    first = {passage.partition(":")[0]: passage for passage in reversed(within)}
    return [*(first | {WINDOW: f"{WINDOW}:2"}).values()]


def watches_nobody() -> None:
    """So that each has a run of its own, until there is one that watches."""

    async def nothing(_: Watchdog) -> None:
        return

    Watchdog.run_once = nothing
