"""What each class of failure comes to."""

from typing import Any

import pytest

from steps import (
    NotAllowed,
    NotSent,
    Refused,
)
from tests.races.driven import Other, status
from tests.races.scenes import ADA, LEASE_S
from transactions import (
    DEFAULT_TENANT,
    Conflict,
    outbox,
)


async def test_what_is_passing_is_sent_again(effects: Any) -> None:
    other = Other([ConnectionRefusedError("no"), NotSent("busy"), 7])
    driven = await effects(other, safety="at_most_once")
    await driven.drive()
    assert other.sent == [1, 2, 3]
    assert await driven.state() == ("SUCCEEDED", None, "delivered", "queued")


async def test_what_is_passing_is_given_up_after_its_attempts_and_after_its_time(effects: Any) -> None:
    other = Other([ConnectionRefusedError("no")])
    driven = await effects(other, safety="verify", attempts_max=3)
    await driven.drive()
    assert other.sent == [1, 2, 3]
    assert await driven.state() == ("FAILED", "transient", "dead", "queued")
    assert await driven.scene.rows("select reason from surefoot.actions") == [
        ("gave up after 3 attempts: ConnectionRefusedError: no",)
    ]


async def test_time_is_a_limit_too(effects: Any) -> None:
    other = Other([ConnectionRefusedError("no")])
    driven = await effects(other, safety="idempotent", elapsed_s_max=0.01)
    await driven.drive()
    assert other.sent == [1]
    assert await driven.state() == ("FAILED", "transient", "dead", "queued")


async def test_a_rate_limit_is_obeyed_by_whoever_comes_and_uses_up_no_attempt(effects: Any) -> None:
    other = Other([NotSent("429", retry_after_s=60), 7])
    driven = await effects(other, safety="at_most_once", attempts_max=1)
    await driven.drive()
    assert other.sent == [1]
    assert await driven.state() == ("PREPARED", "rate_limited", "pending", "waiting")
    left = "select extract(epoch from due_at - clock_timestamp())::int from surefoot.outbox_deliveries"
    ((seconds,),) = await driven.scene.rows(left)
    assert 55 <= seconds <= 60
    async with driven.scene.database.transaction("calls", DEFAULT_TENANT) as session:
        assert await outbox.take_effect(session, driven.action_id, worker_id=ADA, lease_s=LEASE_S) is None
    await driven.due()
    await driven.drive()
    assert other.sent == [1, 2]
    assert await driven.state() == ("SUCCEEDED", None, "delivered", "queued")


@pytest.mark.parametrize(("error", "kind"), [(status(422), "invalid_input"), (Refused("no"), "rejected")])
async def test_a_no_is_a_result_and_not_sent_again(effects: Any, error: Exception, kind: str) -> None:
    other = Other([error])
    driven = await effects(other, safety="idempotent")
    await driven.drive()
    assert other.sent == [1]
    assert await driven.state() == ("FAILED", kind, "dead", "queued")


async def test_what_we_may_not_do_stops_until_a_person_has_put_it_right(effects: Any) -> None:
    other = Other([status(401), status(403), 7])
    driven = await effects(other, safety="verify", attempts_max=1)
    for n in (1, 2):
        await driven.drive()
        assert other.sent == [*range(1, n + 1)]
        assert await driven.state() == ("PREPARED", "permission", "dead", "waiting")
        on_desk = await driven.look()
        assert (on_desk["waits_for"], on_desk["can"]) == ("person", ["succeeded", "absent", "failed"])
        assert "put the permission right" in on_desk["next"]
        await driven.says("absent")
        with pytest.raises(Conflict, match="one decision counts"):
            await driven.says("absent")
    await driven.drive()
    assert other.sent == [1, 2, 3]
    assert await driven.state() == ("SUCCEEDED", None, "delivered", "queued")


@pytest.mark.parametrize(
    ("outcome", "said", "state"),
    [("failed", {"reason": "no such right"}, "FAILED"), ("succeeded", {"result": 9}, "SUCCEEDED")],
)
async def test_what_stopped_can_be_settled_by_a_person(effects: Any, outcome: str, said: Any, state: str) -> None:
    other = Other([NotAllowed("no")])
    driven = await effects(other, safety="verify")
    await driven.drive()
    await driven.says(outcome, **said)
    assert await driven.state() == (state, None, "dead", "queued")
    assert other.sent == [1]
    assert await driven.look() is None
    assert await driven.scene.rows("select count(*) from surefoot.outbox_open") == [(0,)]
