"""A mail to several: each is settled alone, so whoever dies when, nobody is mailed twice but the one in the window."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from outbox import Delivered, MailConsumer
from tests.forked import exit_code
from tests.post import PostOffice, claimed, post
from tests.races.delivering import deliver_until, relay_to
from tests.races.scenes import ADA, BOB, Scene
from transactions import DEFAULT_TENANT, EntryId, backlog, inbox
from transactions.database import PoolTimeout
from transactions.outbox import Delivery

NAMES = ("ann", "ben", "cyd")
STATE = "select state, detail, receipt, attempt from surefoot.outbox_deliveries"


@pytest.fixture
async def office() -> AsyncIterator[PostOffice]:
    office = PostOffice()
    async with office.open():
        yield office


async def deliver(scene: Scene, office: PostOffice, worker: str = ADA) -> Any:
    """One attempt, due now. State, detail, receipt and attempt of the delivery after it."""
    await scene.rows("update surefoot.outbox_deliveries set due_at = clock_timestamp() where state = 'pending'")
    await relay_to(scene.database, office.server(), worker).run_once()
    [row] = await scene.rows(STATE)
    return row


async def redrive(scene: Scene) -> None:
    async with scene.database.transaction("outbox.redrive", DEFAULT_TENANT) as session:
        await backlog.redrive(session, EntryId("letter"), consumer=None, by="eve")


async def killed_at(scene: Scene, office: PostOffice, point: str) -> None:
    """Ada's process delivers and dies there; her lease runs out."""
    code = await asyncio.to_thread(exit_code, deliver_until, scene.database.url, office.server(), ADA, point)
    assert code == -9
    await scene.rows("update surefoot.outbox_deliveries set lease_until = clock_timestamp() where state = 'claimed'")


@pytest.mark.parametrize(
    ("point", "mailed"),
    [
        ("mail.before_send:2", ["ann", "ben", "cyd"]),
        ("mail.after_send:2", ["ann", "ben", "ben", "cyd"]),  # the window that SMTP leaves
        ("mail.settle.before_commit:2", ["ann", "ben", "ben", "cyd"]),
        ("mail.settle.after_commit:2", ["ann", "ben", "cyd"]),
        ("relay.after_take:1", ["ann", "ben", "cyd"]),
    ],
)
async def test_killed_between_two_recipients_nobody_is_lost_and_only_the_one_in_the_window_has_it_twice(
    scene: Scene, office: PostOffice, point: str, mailed: list[str]
) -> None:
    await post(scene.database, *NAMES)
    await killed_at(scene, office, point)
    state, _, receipt, attempt = await deliver(scene, office, BOB)
    assert (state, attempt) == ("delivered", 2)
    assert sorted(office.names()) == mailed
    assert len({taken.message_id for taken in office.taken}) == 1
    assert sorted(receipt["recipients"]) == [f"{name}@example.org" for name in NAMES]


async def test_control_without_the_record_of_each_recipient_they_have_it_twice(
    scene: Scene, office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: object) -> Mapping[str, object]:
        return {}

    await post(scene.database, *NAMES)
    await killed_at(scene, office, "mail.settle.after_commit:2")
    monkeypatch.setattr("outbox.mail.parts_taken", none)
    await deliver(scene, office, BOB)
    assert sorted(office.names()) == ["ann", "ann", "ben", "ben", "cyd"]


async def test_a_mail_goes_to_each_in_an_envelope_of_its_own_in_one_session(scene: Scene, office: PostOffice) -> None:
    await post(scene.database, *NAMES, "ann")
    state, _, receipt, _ = await deliver(scene, office)
    assert state == "delivered"
    assert [taken.recipients for taken in office.taken] == [(f"{name}@example.org",) for name in NAMES]
    assert office.sessions == 1
    assert {taken.to for taken in office.taken} == {
        "ann@example.org, ben@example.org, cyd@example.org, ann@example.org"
    }
    assert receipt == {
        "message_id": office.taken[0].message_id,
        "recipients": {f"{name}@example.org": f"kept as {n}" for n, name in enumerate(NAMES, start=1)},
    }


async def test_who_is_refused_for_now_is_tried_again_without_mailing_the_others(
    scene: Scene, office: PostOffice
) -> None:
    office.refuses = {"ben@example.org": ["450 busy", "451 still busy"]}
    office.refuses_text = {"cyd@example.org": ["452 full"]}
    await post(scene.database, *NAMES)
    state, detail, _, _ = await deliver(scene, office)
    assert state == "pending"
    assert "ben@example.org: the mail server said 450 busy" in detail
    assert "cyd@example.org: the mail server said 452 full" in detail
    assert "taken for ann@example.org" in detail
    await deliver(scene, office)
    state, _, receipt, attempt = await deliver(scene, office)
    assert (state, attempt) == ("delivered", 3)
    assert sorted(office.names()) == sorted(NAMES)
    assert len(receipt["recipients"]) == 3


async def test_who_is_refused_for_good_is_named_and_a_redrive_tries_only_them(scene: Scene, office: PostOffice) -> None:
    office.refuses = {"ann@example.org": ["550 unknown"], "cyd@example.org": ["450 busy"]}
    office.refuses_text = {"ben@example.org": ["554 spam"]}
    await post(scene.database, *NAMES)
    state, detail, _, _ = await deliver(scene, office)
    assert state == "pending"
    assert "550 unknown" in detail
    assert "554 spam" in detail
    state, detail, _, _ = await deliver(scene, office)  # who was refused for good is not asked again
    assert state == "dead"
    assert [office.asked.count(f"{name}@example.org") for name in NAMES] == [1, 1, 2]
    assert "refused for good: ann@example.org: the mail server said 550 unknown, ben@example.org: " in detail
    assert "taken for cyd@example.org" in detail
    assert "redrive" in detail
    office.refuses = {"ann@example.org": ["550 still unknown"]}
    await redrive(scene)
    state, detail, _, _ = await deliver(scene, office)
    assert state == "dead"
    assert "550 still unknown" in detail
    assert "taken for ben@example.org, cyd@example.org" in detail
    await redrive(scene)
    state, _, receipt, _ = await deliver(scene, office)
    assert state == "delivered"
    assert sorted(office.names()) == sorted(NAMES)
    assert list(receipt["recipients"]) == [f"{name}@example.org" for name in NAMES]


async def test_a_sender_that_is_refused_ends_the_attempt(scene: Scene, office: PostOffice) -> None:
    office.refuses_sender = ["451 later", "553 never"]
    await post(scene.database, *NAMES)
    assert (await deliver(scene, office))[0] == "pending"
    state, detail, _, _ = await deliver(scene, office)
    assert (state, detail) == ("dead", "the mail server said 553 never")
    assert office.asked == []


async def test_a_slow_server_gets_the_rest_in_the_next_attempt(scene: Scene, office: PostOffice) -> None:
    """Each recipient has the time of one, and nobody is cut off in the middle."""
    taking = office.handle_DATA

    async def slow(*arguments: Any) -> str:
        await asyncio.sleep(0.3)
        return await taking(*arguments)

    office.handle_DATA = slow
    await post(scene.database, *NAMES)
    consumer = MailConsumer(office.server(timeout_s=0.5), scene.database)
    delivery = await claimed(scene.database)
    assert "the rest comes later" in str(await consumer.take(delivery))
    assert isinstance(await consumer.take(delivery), Delivered)
    assert office.names() == list(NAMES)


async def test_fifty_recipients_fit_into_a_session_and_their_troubles_into_a_detail(
    scene: Scene, office: PostOffice
) -> None:
    names = [f"n{n}" for n in range(50)]
    office.refuses = {f"{name}@example.org": [f"550 no {'x' * 100}"] for name in names[::2]}
    await post(scene.database, *names)
    state, detail, _, _ = await deliver(scene, office)
    assert state == "dead"
    assert office.sessions == 1
    assert office.names() == names[1::2]
    assert " more; taken for n1@example.org" in detail
    assert detail.endswith("only who was refused is tried again")


async def test_an_address_is_checked_before_anything_is_sent(scene: Scene, office: PostOffice) -> None:
    await post(scene.database, "ann", "x" * 400)
    state, detail, _, _ = await deliver(scene, office)
    assert state == "dead"
    assert "is not a mail address" in detail
    assert office.sessions == 0


async def test_a_commit_waits_for_a_database_that_is_away_longer_than_a_mail_may_take(
    scene: Scene, office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server has taken is not forgotten over it."""
    away = 4

    async def take_part(session: Any, delivery: Delivery, part: str, **result: Any) -> bool:
        nonlocal away
        if away:
            away -= 1
            raise PoolTimeout("away")
        return await inbox.take_part(session, delivery, part, **result)

    monkeypatch.setattr("outbox.mail.take_part", take_part)
    await post(scene.database, *NAMES)
    consumer, delivery = MailConsumer(office.server(timeout_s=0.3), scene.database), await claimed(scene.database)
    outcomes = [await consumer.take(delivery), await consumer.take(delivery)]  # the session may have ended meanwhile
    assert isinstance(outcomes[-1], Delivered)
    assert (away, office.names()) == (0, list(NAMES))
