"""A webhook whose sender is killed comes again under the same id, so that its receiver takes it once."""

import asyncio

import pytest

from outbox import verify_webhook
from tests.forked import exit_code
from tests.post import post
from tests.races.delivering import SECRET, deliver_until, relay_to
from tests.races.scenes import ADA, BOB, Scene
from tests.receiver import Receiver


@pytest.mark.parametrize(
    ("point", "requests"),
    [("webhook.before_send:1", 1), ("webhook.after_send:1", 2), ("relay.settle.after_commit:1", 1)],
)
async def test_killed_at_any_point_it_is_delivered_and_a_repeat_has_the_same_id(
    scene: Scene, point: str, requests: int
) -> None:
    receiver = Receiver()
    async with receiver.listening():
        url = f"http://127.0.0.1:{receiver.port}/in"
        await post(scene.database, "ann")
        assert await asyncio.to_thread(exit_code, deliver_until, scene.database.url, url, ADA, point) == -9
        await scene.rows(
            "update surefoot.outbox_deliveries set lease_until = clock_timestamp() where state = 'claimed'"
        )
        await relay_to(scene.database, url, BOB).run_once()
    assert len(receiver.requests) == requests
    ids = {verify_webhook(request.headers, request.body, SECRET) for request in receiver.requests}
    assert len(ids) == 1
    assert len({request.body for request in receiver.requests}) == 1
    [[state, receipt]] = await scene.rows("select state, receipt from surefoot.outbox_deliveries")
    assert state == "delivered"
    assert receipt["webhook_id"] in ids
