"""The operator's hand on the outbox: by Python, HTTP, commands. A refusal is one sentence and changes nothing."""

import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

import httpx
import pytest

from app import Surefoot
from app.acting import Acting
from tests.bad_input.sentences import rows, sentence
from tests.forked import surefoot as command
from tests.kit import acting
from transactions import (
    DEFAULT_TENANT,
    Conflict,
    Database,
    EntryId,
    InvalidInput,
    NotFound,
    Principal,
    Role,
    WorkerId,
    outbox,
)
from transactions.outbox import Delivery, End

UNSTORABLE = "A text contains a NUL character or half of a surrogate pair, which Postgres cannot store: remove it."
OPERATOR = frozenset({Role.OPERATOR})
State = Literal["pending", "claimed", "delivered", "dead", "discarded"]
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Desk:
    """A Surefoot and its API in this process, on a database where entries can be put into any state."""

    surefoot: Surefoot
    client: httpx.AsyncClient
    database: Database

    async def entry(self, *states: State, key: str | None = None, consumers: tuple[str, ...] = ()) -> str:
        """A new entry with one delivery in each of these states, to `c0`, `c1`, ... of its own."""
        entry_id = EntryId(f"run/1/{next(_NUMBERS)}:tool#news:0")
        names = consumers or tuple(f"{entry_id}-c{n}" for n, _ in enumerate(states))
        async with self.database.transaction("put", DEFAULT_TENANT) as session:
            await outbox.put(
                session,
                entry_id=entry_id,
                tenant=DEFAULT_TENANT,
                run_id=None,
                action_id=None,
                topic="news",
                payload={"n": 1},
                consumers=names,
                key=key,
            )
        for name, state in zip(names, states, strict=True):
            if state == "discarded":
                await (await self.person("eve")).discard(entry_id, consumer=name, reason="for the test")
            elif state != "pending":
                await self._deliver(name, state)
        return entry_id

    async def person(self, name: str) -> Acting:
        return await acting(self.surefoot, name, "operator")

    async def claim(self, consumer: str) -> Delivery | None:
        async with self.database.all_tenants("claim") as session:
            found = await outbox.claim_due(
                session, consumers=[consumer], agents=[], worker_id=WorkerId("ada"), lease_s=3600, limit=1
            )
        return found[0] if found else None

    async def _deliver(self, consumer: str, state: State) -> None:
        delivery = await self.claim(consumer)
        assert delivery is not None
        async with self.database.transaction("settle", DEFAULT_TENANT) as session:
            if state == "delivered":
                assert await outbox.acknowledge(session, delivery, receipt="ok")
            if state == "dead":
                assert await outbox.settle(session, [End(delivery, "dead", "the address is gone")])


@pytest.fixture
async def desk(migrated: str) -> AsyncIterator[Desk]:
    surefoot = Surefoot(migrated, [])
    database = Database(migrated)
    transport = httpx.ASGITransport(surefoot.web, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield Desk(surefoot, client, database)
    await surefoot.close()
    await database.close()


def kept(url: str) -> list[dict[str, object]]:
    return rows(url, "select entry_id, consumer, state, attempt, attempts_max, detail from surefoot.outbox_deliveries")


@pytest.fixture
def url(migrated: str) -> Iterator[str]:
    yield migrated
    rows(migrated, "delete from surefoot.workers returning worker_id")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pending", "is pending and goes by itself: only a dead one can be redriven."),
        ("claimed", "is being delivered by worker ada, attempt 1: only a dead one can be redriven."),
        ("delivered", "UTC: only a dead one can be redriven."),
        ("discarded", "is discarded by eve: for the test: only a dead one can be redriven."),
    ],
)
async def test_a_redrive_of_what_is_not_dead_says_what_it_is(desk: Desk, url: str, state: State, words: str) -> None:
    entry_id = await desk.entry(state)
    before = kept(url)
    with pytest.raises(Conflict) as refused:
        await desk.surefoot.redrive(entry_id)
    assert str(refused.value).startswith(f"Entry {entry_id} to {entry_id}-c0 ")
    assert str(refused.value).endswith(words)
    assert kept(url) == before


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("claimed", "is being delivered by worker ada, attempt 1: only a dead or pending one can be discarded."),
        ("delivered", "UTC: only a dead or pending one can be discarded."),
        ("discarded", "is discarded by eve: for the test: only a dead or pending one can be discarded."),
    ],
)
async def test_a_discard_of_what_is_settled_or_under_way_says_what_it_is(
    desk: Desk, url: str, state: State, words: str
) -> None:
    entry_id = await desk.entry(state)
    before = kept(url)
    with pytest.raises(Conflict) as refused:
        await desk.surefoot.discard(entry_id, reason="no")
    assert str(refused.value).endswith(words)
    assert kept(url) == before


async def test_a_redriven_entry_is_due_with_fresh_attempts_and_says_who(desk: Desk, url: str) -> None:
    entry_id = await desk.entry("dead", "delivered")
    assert await (await desk.person("ada")).redrive(entry_id) == [f"{entry_id}-c0"]
    found = (await desk.surefoot.entry(entry_id))["deliveries"]
    assert [(row["state"], row["attempt"], row["attempts_max"]) for row in found] == [
        ("pending", 1, 21),
        ("delivered", 1, 20),
    ]
    assert found[0]["detail"] == "redriven by ada; before: the address is gone"
    again = await desk.claim(f"{entry_id}-c0")
    assert again is not None
    assert (again.attempt, again.tries) == (2, 1)
    with pytest.raises(Conflict):
        await desk.surefoot.redrive(entry_id)


async def test_a_late_acknowledgement_of_a_dead_delivery_is_kept_and_a_redrive_sends_nothing(
    desk: Desk, url: str
) -> None:
    entry_id = await desk.entry("claimed")
    [name] = [f"{entry_id}-c0"]
    rows(url, "update surefoot.outbox_deliveries set lease_until = now() where entry_id = %s returning 1", entry_id)
    second = await desk.claim(name)
    assert second is not None
    first = Delivery(**{**{f: getattr(second, f) for f in second.__slots__}, "attempt": 1})
    async with desk.database.transaction("settle", DEFAULT_TENANT) as session:
        assert await outbox.settle(session, [End(second, "dead", "no")])
    async with desk.database.transaction("settle", DEFAULT_TENANT) as session:
        assert not await outbox.acknowledge(session, first, receipt="late")
    [row] = (await desk.surefoot.entry(entry_id))["deliveries"]
    assert row["taken_at"] is not None
    assert row["what_to_do"].startswith("redrive it: its consumer has taken it")
    await desk.surefoot.redrive(entry_id)
    third = await desk.claim(name)
    assert third is not None
    assert third.taken == {"receipt": "late"}


async def test_a_discard_needs_a_reason_which_is_kept_and_lets_the_next_of_its_key_go(desk: Desk, url: str) -> None:
    first = await desk.entry("dead", key="k", consumers=("keyed",))
    second = await desk.entry("pending", key="k", consumers=("keyed",))
    assert await desk.claim("keyed") is None
    [row] = (await desk.surefoot.entry(second))["deliveries"]
    assert (row["standing"], row["why"]) == ("blocked", f"entry {first} of the same key is dead")
    for reason in ("", "  \n"):
        with pytest.raises(InvalidInput, match=r"^Say why it is discarded \(--reason WHY\)"):
            await desk.surefoot.discard(first, reason=reason)
    with pytest.raises(InvalidInput, match="The reason has 4001 characters; the limit is 4000"):
        await desk.surefoot.discard(first, reason="r" * 4001)
    assert await (await desk.person("ada")).discard(first, reason="the address is wrong") == ["keyed"]
    [row] = (await desk.surefoot.entry(first))["deliveries"]
    assert row["detail"] == "discarded by ada: the address is wrong; before: the address is gone"
    with pytest.raises(Conflict, match="only a dead one can be redriven"):
        await desk.surefoot.redrive(first)
    claimed = await desk.claim("keyed")
    assert claimed is not None
    assert claimed.entry_id == second


async def test_a_discard_of_an_entry_with_several_deliveries_takes_the_dead_one_or_asks_which(desk: Desk) -> None:
    entry_id = await desk.entry("dead", "pending")
    assert await desk.surefoot.discard(entry_id, reason="r") == [f"{entry_id}-c0"]
    with pytest.raises(Conflict, match=r"say which one to discard \(--consumer NAME\)\.$"):
        await desk.surefoot.discard(entry_id, reason="r")
    assert await desk.surefoot.discard(entry_id, reason="r", consumer=f"{entry_id}-c1") == [f"{entry_id}-c1"]


@pytest.mark.parametrize("consumer", [None, "effect"])
async def test_an_effect_belongs_to_its_action(desk: Desk, url: str, consumer: str | None) -> None:
    entry_id = await desk.entry("pending", consumers=("effect",))
    before = kept(url)
    for refused in (
        desk.surefoot.redrive(entry_id, consumer=consumer),
        desk.surefoot.discard(entry_id, reason="r", consumer=consumer),
    ):
        with pytest.raises(Conflict, match=r"is an effect: it belongs to its action, .+\(`surefoot actions`\)\.$"):
            await refused
    assert kept(url) == before


async def test_who_is_not_there_is_not_found(desk: Desk) -> None:
    entry_id = await desk.entry("dead")
    for refused in (desk.surefoot.redrive("nope"), desk.surefoot.discard("nope", reason="r"), desk.surefoot.entry("n")):
        with pytest.raises(NotFound, match=r": see `surefoot outbox list`\.$"):
            await refused
    with pytest.raises(NotFound, match=f"does not go to 'other': choose one of: {entry_id}-c0"):
        await desk.surefoot.redrive(entry_id, consumer="other")


async def test_what_cannot_be_stored_and_a_name_that_is_none_is_refused(desk: Desk, url: str) -> None:
    entry_id = await desk.entry("dead")
    before = kept(url)
    for by in ("", " ", "a" * 201, "a\0"):
        nobody = Principal(DEFAULT_TENANT, by, OPERATOR, authenticated=True)
        with pytest.raises(InvalidInput):
            await desk.surefoot.acting_for(nobody).redrive(entry_id)
    for bad in ("a\0", "\ud800"):
        with pytest.raises(InvalidInput):
            await desk.surefoot.entry(bad)
        with pytest.raises(InvalidInput):
            await desk.surefoot.discard(entry_id, reason=bad)
    assert kept(url) == before


async def test_two_people_at_once_redrive_it_once(desk: Desk) -> None:
    entry_id = await desk.entry("dead")
    await desk.surefoot.redrive(entry_id)
    with pytest.raises(Conflict):
        await desk.surefoot.redrive(entry_id)
    assert await desk.surefoot.discard(entry_id, reason="r") != []
    with pytest.raises(Conflict, match="is discarded by unauthenticated: r"):
        await desk.surefoot.discard(entry_id, reason="r")


async def test_what_no_live_worker_can_deliver_is_shown_as_such_and_goes_when_one_can(desk: Desk, url: str) -> None:
    """Derived from what workers say: one of an older version says nothing, and may have every consumer."""
    entry_id = await desk.entry("pending", consumers=("fax",))

    async def stands() -> str:
        [row] = (await desk.surefoot.entry(entry_id))["deliveries"]
        return row["standing"]

    add = (
        "insert into surefoot.workers"
        " (worker_id, version, host, machine, pid, pid_start, lease_s, lease_until, consumers)"
        " values (%s, '1', 'h', 'm', 1, '1', 60, now() + interval '1 hour', %s) returning worker_id"
    )
    assert await stands() == "pending"  # nobody lives: nothing can be said
    rows(url, add, "mailer", ["effect", "mail"])
    assert await stands() == "undeliverable"
    with pytest.raises(Conflict, match=r"is undeliverable \(no live worker has the consumer fax\) and goes by itself"):
        await desk.surefoot.redrive(entry_id)
    [stuck] = rows(url, "select * from surefoot.outbox_backlog where consumer = 'fax'")
    assert (stuck["standing"], stuck["state"], stuck["entries"], stuck["first_entry_id"]) == (
        "undeliverable",
        "pending",
        1,
        entry_id,
    )
    assert stuck["what_to_do"] == "start a worker that has this consumer; or discard it with a reason"
    rows(url, add, "faxer", ["fax"])
    assert await stands() == "pending"
    rows(url, "delete from surefoot.workers where worker_id = 'faxer' returning worker_id")
    rows(url, add, "old", None)
    assert await stands() == "pending"


async def test_over_http_every_refusal_has_its_status_and_one_sentence(desk: Desk, url: str) -> None:
    dead, taken = await desk.entry("dead"), await desk.entry("delivered")
    before = kept(url)
    path, other = (f"/outbox/{entry.replace('#', '%23')}" for entry in (dead, taken))
    for status, method, where, body in (
        (404, "GET", "/outbox/nope", None),
        (422, "GET", "/outbox/a%00b", None),
        (422, "GET", "/outbox?state=over", None),
        (422, "GET", "/outbox?limit=0", None),
        (404, "POST", "/outbox/nope/redrive", None),
        (409, "POST", f"{other}/redrive", {}),
        (404, "POST", f"{path}/redrive", {"consumer": "other"}),
        (422, "POST", f"{path}/redrive", {"when": "now"}),
        (422, "POST", f"{path}/redrive", {"by": "ada"}),
        (422, "POST", f"{path}/discard", {}),
        (422, "POST", f"{path}/discard", {"reason": " "}),
        (422, "POST", f"{path}/discard", {"reason": "a\0"}),
        (422, "POST", f"{path}/discard", {"reason": "r", "by": "ada"}),
        (409, "POST", f"{other}/discard", {"reason": "r"}),
    ):
        answer = await desk.client.request(method, where, json=body)
        assert (answer.status_code, list(answer.json())) == (status, ["error"]), (where, answer.text)
    assert kept(url) == before
    [listed] = [row for row in (await desk.client.get("/outbox?state=dead")).json() if row["entry_id"] == dead]
    assert (listed["why"], listed["standing"]) == ("the address is gone", "dead")
    answer = await desk.client.post(f"{path}/redrive")
    assert [row["standing"] for row in answer.json()["deliveries"]] == ["pending"]
    answer = await desk.client.post(f"{path}/discard", json={"reason": "r"})
    assert [row["standing"] for row in answer.json()["deliveries"]] == ["discarded"]
    assert dead not in [row["entry_id"] for row in (await desk.client.get("/outbox?topic=news")).json()]


async def test_on_the_command_line(desk: Desk, url: str) -> None:
    dead, taken = await desk.entry("dead"), await desk.entry("delivered")
    env = {"DATABASE_URL": url}
    assert sentence(command("outbox", "redrive", taken, env=env)).endswith("only a dead one can be redriven.")
    assert sentence(command("outbox", "discard", dead, "--reason", " ", env=env)).startswith("Say why it is discarded")
    assert "Missing option '--reason'" in command("outbox", "discard", dead, env=env).stderr
    listed = command("outbox", "list", "--state", "dead", "--topic", "news", env=env).stdout
    assert f"{dead}\n  news to {dead}-c0\n  dead since " in listed
    assert "to do: put the cause right and redrive it; or discard it with a reason" in listed
    assert command("outbox", "redrive", dead, env=env).stdout == f"redriven: {dead} to {dead}-c0 is due now\n"
    shown = command("outbox", "show", dead, env=env).stdout
    assert '  {"n": 1}\nto ' in shown
    assert "attempt 1 of 21: redriven by unauthenticated; before: the address is gone" in shown
