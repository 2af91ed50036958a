"""Frozen at every point there is between the claim of an effect and its receipt, and woken after its run went on.

It writes nothing, claims nothing, sends nothing, and ends. One window is left, and counted apart: between the last look
at the lease and the first byte a send needs no more permission; who is stopped there for as long as a lease may send.
"""

import signal

from app.crashtest import judge
from app.watchdog import Watchdog
from tests.guarantees.test_a_worker_that_lost_its_lease_ends import everything, heeds_no_lease
from tests.killed import left_alone
from tests.kit import Process, until
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
    sent_again = [one.reference.partition("/")[0] for one in stage.outside.sent[sent:]]
    assert in_the_window >= {*sent_again}
    assert len(sent_again) == len({*sent_again}), "what may be sent in the window is one send"
    references = [one.reference for one in stage.outside.sent[:sent]]
    assert len(references) == len(set(references)) == len(run_ids) + 1


def test_control_woken_without_a_lease_to_heed_it_sends_once_more(stage: Stage) -> None:
    frozen = stage.working(
        "effect.claim.after_commit:1:stop", broken=watches_nobody_and_heeds_no_lease, SUREFOOT_LEASE_S="2"
    )
    stage.outside.busy = 1
    run_id = stage.script(*SCRIPT)
    frozen.until_it_stops()
    stage.outside.busy = 0
    others = stage.working(SUREFOOT_LEASE_S="60")
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert [one.pid for one in stage.outside.sent] == [others.pid]
    frozen.signal(signal.SIGCONT)
    stage.outside.until_sent(2)
    assert stage.outside.sent[1].pid == frozen.pid
    shown = "select 1 from surefoot.receipts where contradiction is not null"
    until("the judge of a fleet is shown what was sent too late", lambda: bool(stage.rows(shown)))
    [late] = stage.rows(judge._TOO_LATE.replace(":run_id", "%s"), run_id)
    assert stage.rows("select 1 from surefoot.workers where worker_id = %s and state = 'dead'", late["worker_id"])


def points(stage: Stage) -> list[str]:
    """All points that a run left alone passes from its effect's claim to its receipt, each at one of its passages."""
    stage.outside.busy = 1
    _, passages = left_alone(stage, SCRIPT)
    within = passages[passages.index(FIRST) : passages.index(LAST) + 1]
    assert {"effect.claim.before_commit:1", f"{WINDOW}:2", "effect.after_send:1"} <= set(within)
    first = {passage.partition(":")[0]: passage for passage in reversed(within)}
    return [*(first | {WINDOW: f"{WINDOW}:2"}).values()]


def watches_nobody_and_heeds_no_lease() -> None:
    watches_nobody()
    heeds_no_lease()


def watches_nobody() -> None:
    """So that each has a run of its own, until there is one that watches."""

    async def nothing(_: Watchdog) -> None:
        return

    Watchdog.run_once = nothing
