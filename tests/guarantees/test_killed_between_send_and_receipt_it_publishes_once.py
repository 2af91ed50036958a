"""A process killed after the other side has done it and before the receipt is recorded: it is verified, not sent again."""

from tests.kit import Site


def test_killed_between_send_and_receipt_it_publishes_once(site: Site) -> None:
    first = site.worker()
    run_id = site.start() if first.until_it_says("works as") else ""
    site.until_state(run_id, "waiting")
    first.kill()
    second = site.worker("effect.after_send")
    site.approve(run_id)
    assert second.until_it_dies() == -9
    assert len(site.world.publications()) == 1
    site.worker()
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
