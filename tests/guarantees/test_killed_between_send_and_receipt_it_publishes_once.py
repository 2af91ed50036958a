"""A process killed after the other side did it and before the receipt is recorded: it is verified, not sent again."""

from typing import Any

from steps import Absent, verifying
from tests.kit import Process, Site


def test_killed_between_send_and_receipt_it_publishes_once(site: Site) -> None:
    run_id, _ = killed_after_publishing(site)
    site.working()
    site.until_state(run_id, "completed")
    site.until_quiet(run_id)
    assert len(site.world.publications()) == 1
    assert len(site.world.publish_requests()) == 1
    assert len(site.world.mails()) == 1
    how = site.rows(
        "select how from surefoot.run_timeline where run_id = %s and what = 'receipt' and name like '%%publish%%'",
        run_id,
    )
    assert [row["how"] for row in how] == ["verification"]


def test_control_with_every_verdict_replaced_by_absent_it_publishes_twice(site: Site) -> None:
    run_id, killed = killed_after_publishing(site)
    # "Absent" is believed only after the attempt's deadline: bring it here.
    site.rows("update surefoot.actions set attempt_deadline_at = clock_timestamp() where state = 'IN_FLIGHT'")
    second = site.worker(broken=every_verdict_is_absent)
    site.until_state(run_id, "completed")
    requests = site.world.publish_requests()
    assert len({request.reference for request in requests}) == 1
    assert [request.pid for request in requests] == [killed.pid, second.pid]
    assert len(site.world.publications()) == 2


def killed_after_publishing(site: Site) -> tuple[str, Process]:
    """A run whose worker died with its publication made and no receipt, and that worker."""
    first = site.working()
    run_id = site.start()
    site.until_state(run_id, "waiting")
    first.kill()
    second = site.working("effect.after_send")
    site.approve(run_id)
    assert second.until_it_dies() == -9
    assert len(site.world.publications()) == 1
    return run_id, second


def every_verdict_is_absent() -> None:
    async def verdict(*_: Any) -> Absent:
        return Absent("handed in by a test")

    verifying._verdict = verdict
