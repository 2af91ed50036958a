"""Retention beside everything else that may happen to a run that is over, and what each kind of it takes and leaves."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from app.retention import Retention
from tests import retained
from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import ADA, AGENT, BOB, Scene, register
from tests.races.test_undo import WAYS
from tests.retained import FLAWS, GROUP, KEEP_S, KEYS_S, Flaw, Made
from transactions import (
    DEFAULT_TENANT,
    ApprovalId,
    Conflict,
    EntryId,
    NotFound,
    RunId,
    Tenant,
    WorkerId,
    artifacts,
    backlog,
    leftovers,
    messages,
    outbox,
    removal,
    retention,
    runs,
    undo,
)
from transactions.artifacts import Stored
from transactions.outbox import Delivery
from transactions.removal import START, Batch
from transactions.retention import FOREVER, Group, Keep

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 100
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
WHY: dict[Flaw, str] = {
    "unsettled": "an action of it is not settled",
    "may be answered": "an attempt of it may still be answered",
    "contradicted": "a receipt of it contradicts what counts",
    "undelivered": "a delivery of it is open or dead",
    "pending": "an approval of it is pending",
    "open segment": "a segment of it is not settled",
    "segment in the queue": "a segment of it is not settled",
    "in the engine": "the engine is not done with it",
    "business key": "a business key of it is kept",
    "idempotency key": "its idempotency key is kept",
    "counted start": "a limit on starts counts it",
    "superseded": "an approval of another run supersedes one of it",
    "held by a table": "a row of public.mine refers to it",
}


# What stays, and why.


@pytest.mark.parametrize("flaw", FLAWS)
async def test_a_run_stays_as_long_as_something_keeps_it_and_that_is_told(scene: Scene, flaw: Flaw) -> None:
    made, other = await retained.whole(scene), await retained.whole(scene)
    await retained.spoil(scene, made, flaw)
    gone, kept = await retained.removed(scene)
    assert gone == {other.run_id}, "and it holds no other one back"
    assert kept == {WHY[flaw]: 1}
    if flaw == "business key":
        gone, _ = await retained.removed(scene, KEYS_S)
    else:
        await retained.spoil(scene, made, flaw, there=False)
        gone, _ = await retained.removed(scene)
    assert made.run_id in gone


async def test_who_goes_on_or_is_young_stays(scene: Scene) -> None:
    going_on, young = await retained.begun(scene), await retained.whole(scene, aged_too=False)
    assert await retained.removed(scene) == (set(), {})
    assert {going_on.run_id, young.run_id} <= await retained.ids(scene)
    async with scene.database.removing("look") as session:
        (said,) = await removal.fetch_all(session, removal._REMOVAL["unfinished"], run_ids=[going_on.run_id])
    assert said["why"] == "it is not over"


async def test_runs_that_need_each_other_go_together(scene: Scene) -> None:
    one, two = await retained.begun(scene), await retained.begun(scene)
    for owner, sharer in ((one, two), (two, one)):
        assert await retained.asked(scene, owner, f"of {owner.run_id}")
        assert not await retained.asked(scene, sharer, f"of {owner.run_id}")
    for made in (one, two):
        await retained.over(scene, made)
    await retained.aged(scene, one)
    gone, kept = await retained.removed(scene, KEYS_S)
    assert (gone, kept) == (set(), {"another run relies on an action of it": 1})
    await retained.aged(scene, two)
    gone, _ = await retained.removed(scene, KEYS_S)
    assert gone == {one.run_id, two.run_id}


async def test_the_foreign_key_is_a_second_wall_around_what_is_shared(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, sharer = await retained.begun(scene), await retained.begun(scene)
    await retained.asked(scene, owner, "k")
    await retained.asked(scene, sharer, "k")
    await retained.over(scene, owner)
    await retained.aged(scene, owner)
    spoilt = removal._REMOVAL["referred_to"].text.replace("not c.run_id = any(:run_ids)", "false")
    monkeypatch.setattr(removal, "_REMOVAL", {**removal._REMOVAL, "referred_to": removal.TextClause(spoilt)})
    gone, kept = await retained.removed(scene, KEYS_S)
    assert (gone, kept) == (set(), {"a row of surefoot.action_calls refers to it": 1})


# What may happen at the same moment.


async def _undone(scene: Scene, made: Made) -> None:
    async with scene.database.transaction("run.undo", DEFAULT_TENANT) as session:
        await undo.request(session, RunId(made.run_id), WAYS, by="eve", authenticated=False, reason="no")


async def _discarded(scene: Scene, made: Made) -> None:
    async with scene.database.transaction("outbox.discard", DEFAULT_TENANT) as session:
        await backlog.discard(session, EntryId(f"{made.first}#news:0"), consumer=None, reason="no", by="eve")


async def _redriven(scene: Scene, made: Made) -> None:
    async with scene.database.transaction("outbox.redrive", DEFAULT_TENANT) as session:
        await backlog.redrive(session, EntryId(f"{made.first}#news:0"), consumer=None, by="eve")


async def _decided(scene: Scene, made: Made) -> None:
    await scene.decide(ApprovalId(f"of {made.run_id}"), "approve")


async def _answered(scene: Scene, made: Made) -> None:
    await scene.receive(made.first, attempt=9, worker_id=BOB, result="twice")


async def _asked(scene: Scene, made: Made, asking: Made) -> None:
    """The same business key by a run that goes on."""
    await retained.asked(scene, asking, made.run_id)


Deed = Callable[..., Awaitable[None]]
DEEDS: dict[str, tuple[Deed, Flaw | None]] = {
    "undone": (_undone, None),
    "redriven": (_redriven, "undelivered"),
    "discarded": (_discarded, "undelivered"),
    "approved": (_decided, "pending"),
    "answered once more": (_answered, None),
    "asked for by its key": (_asked, None),
}


@pytest.mark.parametrize("what", DEEDS)
async def test_whoever_comes_first_is_seen_and_whoever_comes_later_finds_nothing(
    scene: Scene, pace: Pace, what: str
) -> None:
    outcomes: set[bool] = set()

    async def play(seed: int) -> None:
        deed, flaw = DEEDS[what]
        made = await retained.begun(scene)
        if what == "asked for by its key":
            assert await retained.asked(scene, made, made.run_id)
            deed = partial(deed, asking=Made(await scene.running()))
        await retained.over(scene, made)
        await retained.aged(scene, made)
        if flaw is not None:
            await retained.spoil(scene, made, flaw)
        stage = scene.stage(seed)
        doer = stage.actor(what, partial(deed, scene, made))
        remover = stage.actor("retention", partial(retained.removing, scene, KEYS_S))
        with pace.one(stage):
            await stage.play()
        remover.outcome()
        there = made.run_id in await retained.ids(scene)
        outcomes.add(there)
        try:
            doer.outcome()
        except NotFound:
            assert not there
        except Conflict:
            assert there
            assert what == "approved"  # whose run is over
        await _nothing_is_half_there(scene, made, there=there)
        await scene.rows("update surefoot.runs set agent = 'of another seed' where ended_at is not null")

    await in_lanes(range(SEED, SEED + INTERLEAVINGS), play, lanes=1)
    assert True in outcomes or what == "undone", outcomes


async def _nothing_is_half_there(scene: Scene, made: Made, *, there: bool) -> None:
    """Of a run that is gone no row of any table says anything."""
    for schema, table in await tables(scene):
        (found,) = (
            await scene.rows(f"select count(*) from {schema}.{table} t where strpos(t::text, %s) > 0", made.run_id)
        )[0]
        named_by_another = (schema, table) in (("surefoot", "actions"), ("surefoot", "action_calls"))
        named_by_another |= table.startswith(("outbox_", "attempts", "receipts", "events", "artifact_numbers"))
        assert there or found == 0 or named_by_another, f"{found} rows in {schema}.{table}"
    if not there:
        (mine,) = (await scene.rows("select count(*) from surefoot.actions where run_id = %s", made.run_id))[0]
        assert mine == 0


async def tables(scene: Scene) -> list[tuple[str, str]]:
    return await scene.rows(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname in ('surefoot', 'dbos') and c.relkind in ('r', 'p')"
    )


async def test_what_somebody_is_at_work_on_is_passed_over(scene: Scene) -> None:
    made, other = await retained.whole(scene), await retained.whole(scene)
    for lock in (
        f"select 1 from surefoot.runs where run_id = '{made.run_id}' for no key update",
        f"select 1 from surefoot.actions where run_id = '{made.run_id}' for no key update",
        f"select 1 from surefoot.outbox_entries where run_id = '{made.run_id}' for key share",
        f"select 1 from surefoot.outbox_deliveries where starts_with(entry_id, '{made.run_id}') for no key update",
    ):
        async with scene.database.all_tenants("at work") as session:
            await (await session.connection()).exec_driver_sql(lock)
            gone, kept = await retained.removed(scene)
            assert made.run_id not in gone
            assert kept == {"somebody is at work on it": 1}
    assert other.run_id not in await retained.ids(scene)
    assert (await retained.removed(scene))[0] == {made.run_id}


async def test_one_batch_at_a_time_and_one_pass_at_its_pace(scene: Scene) -> None:
    async with scene.database.removing("one") as one, scene.database.removing("two") as two:
        assert await retention.try_lock(one)
        assert not await retention.try_lock(two)
    async with scene.database.removing("begin") as session:
        assert await retention.begin_pass_if_due(session, "runs", every_s=60)
        assert not await retention.begin_pass_if_due(session, "runs", every_s=60)
        assert await retention.begin_pass_if_due(session, "runs", every_s=0)
        assert await retention.begin_pass_if_due(session, "engine", every_s=60)
        await retention.go_on(session, "runs", rest_s=5)
        assert not await retention.begin_pass_if_due(session, "runs", every_s=0), "its next batch is awaited"


async def test_a_pass_that_meets_another_waits_for_its_turn_and_ends_what_it_began(scene: Scene) -> None:
    made = await retained.whole(scene)
    loop = Retention(scene.database, Keep(runs=KEEP_S), lambda: None, rest=0)
    async with scene.database.removing("another") as session:
        assert await retention.try_lock(session)
        passing = asyncio.create_task(loop.go_through("runs", by="workers"))
        await asyncio.wait([passing], timeout=0.5)
        assert not passing.done()
    done = await passing
    assert (done.items, done.more) == (1, False)
    assert made.run_id not in await retained.ids(scene)


async def test_what_a_tenants_own_admin_has_counted_keeps_nobody_from_removing(scene: Scene) -> None:
    """Not even for a moment: it locks no run, and takes nobody's turn; and it counts what then goes."""
    made = await retained.whole(scene)
    assert made.artifact is not None
    async with scene.database.transaction("put", DEFAULT_TENANT) as session:
        await outbox.put(
            session, entry_id=EntryId("e"), tenant=DEFAULT_TENANT, run_id=None, action_id=None, topic="news",
            payload={}, consumers=("one",), key="k",
        )  # fmt: skip
    await scene.forced("update surefoot.outbox_deliveries set state = 'delivered', settled_at = now()")
    await scene.rows("update surefoot.outbox_deliveries set settled_at = now() - interval '2 hours'")
    await scene.rows("update surefoot.outbox_entries set created_at = now() - interval '2 hours'")
    kinds: tuple[retention.Kind, ...] = ("messages", "events", "outbox", "artifacts", "runs")
    loop = Retention(scene.database, Keep(**dict.fromkeys(kinds, KEEP_S)), lambda: None, rest=0)
    async with scene.database.removing("another") as session:
        assert await retention.try_lock(session)
        async with scene.database.all_tenants("at work") as other:
            await other.execute(text("select 1 from surefoot.runs for update"))
            async with asyncio.timeout(10):
                counted = [await loop.go_through(kind, by="ada", dry=True, tenant=DEFAULT_TENANT) for kind in kinds]
    assert [(one.kind, one.items, one.kept) for one in counted] == [
        ("messages", 0, {}), ("events", 1, {}), ("outbox", 2, {}), ("artifacts", 0, {}), ("runs", 1, {}),
    ]  # fmt: skip
    assert made.run_id in await retained.ids(scene)
    assert (await loop.go_through("outbox", by="ada", tenant=DEFAULT_TENANT)).items == 2
    assert (await loop.go_through("runs", by="ada", tenant=DEFAULT_TENANT)).items == 1


async def test_of_runs_that_stay_for_their_keys_nothing_is_locked(scene: Scene) -> None:
    keyed, other = await retained.whole(scene), await retained.whole(scene)
    await retained.spoil(scene, keyed, "idempotency key")
    async with scene.database.removing("retention.batch") as session:
        batch = await removal.whole_runs(session, GROUP, START, limit=10, keys_s=FOREVER)
        assert (batch.items, batch.kept) == (1, {"its idempotency key is kept": 1})
        for table in ("runs", "actions", "outbox_entries"):
            free = f"select 1 from surefoot.{table} where run_id = %s for update skip locked"
            assert await scene.rows(free, keyed.run_id), table
            assert await scene.rows(free, other.run_id) == [], table


# Keys.


async def test_a_key_means_what_it_meant_as_long_as_it_is_kept_and_starts_anew_after(scene: Scene) -> None:
    made = await retained.begun(scene)
    assert await retained.asked(scene, made, "order 7")
    await retained.over(scene, made)
    await retained.aged(scene, made)
    await scene.rows(
        "update surefoot.runs set idempotency_key = 'aug', request_hash = 'h' where run_id = %s", made.run_id
    )
    assert (await retained.removed(scene))[0] == set()
    assert not await retained.asked(scene, Made(await scene.running()), "order 7"), "it is done, and is not done again"
    with pytest.raises(Conflict, match="already started run"):
        await _start(scene, "aug")
    await scene.rows("delete from surefoot.action_calls where run_id <> %s", made.run_id)
    assert (await retained.removed(scene, KEYS_S))[0] == {made.run_id}
    assert await retained.asked(scene, Made(await scene.running()), "order 7")
    assert await _start(scene, "aug") != made.run_id


async def _start(scene: Scene, key: str) -> RunId:
    async with scene.database.transaction("run.start", DEFAULT_TENANT) as session:
        return await runs.start(session, agent=AGENT, input={}, key=key, tenant=DEFAULT_TENANT, principal="test")


async def test_a_key_whose_run_is_removed_while_it_is_looked_for_starts_anew(scene: Scene) -> None:
    await scene.forced(
        "insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash, idempotency_key, state,"
        " output, ended_at) values ('old', 'default', %s, 'ada', '1', 'h', 'aug', 'completed', '1', now())", AGENT,
    )  # fmt: skip
    await scene.rows(
        "create function public.removed() returns trigger language plpgsql security definer as $$ begin"
        " delete from surefoot.runs where run_id = 'old'; return null; end $$"
    )
    await scene.rows("create trigger removed after insert on surefoot.runs execute function public.removed()")
    started = await _start(scene, "aug")
    assert await scene.rows("select run_id, state from surefoot.runs where idempotency_key = 'aug'") == [
        (started, "queued")
    ]


# Parts of a run that stays.


async def _part(scene: Scene, part: removal.Part) -> Batch:
    async with scene.database.removing("retention.batch") as session:
        return await removal.part_of_runs(session, part, GROUP, START, limit=10)


async def _told(scene: Scene, made: Made) -> list[tuple[Any, ...]]:
    return await scene.rows("select seq, kind, data from surefoot.events where run_id = %s order by seq", made.run_id)


async def test_messages_go_and_that_is_told(scene: Scene) -> None:
    made = await retained.begun(scene)
    async with scene.database.transaction("segment.turn", DEFAULT_TENANT) as session:
        await messages.append(
            session, made.execution, first_seq=0, messages=[{"kind": "request"}, {"kind": "response"}]
        )
    await retained.over(scene, made)
    assert await _part(scene, "messages") == Batch(), "it is young"
    await retained.aged(scene, made)
    batch = await _part(scene, "messages")
    assert (batch.items, batch.rows) == (1, 3), "two messages, and those before a migration"
    assert (await _told(scene, made))[-1][1:] == ("history.removed", {"what": "messages"})
    assert await _part(scene, "messages") == Batch(), "and is not looked at again"


async def test_events_go_and_the_next_one_has_the_next_number(scene: Scene) -> None:
    made = await retained.whole(scene)
    before = await _told(scene, made)
    batch = await _part(scene, "events")
    assert (batch.items, batch.rows) == (1, len(before))
    assert await _told(scene, made) == [(len(before) + 1, "history.removed", {"what": "events", "up_to": len(before)})]
    await _undone(scene, made)
    assert [seq for seq, *_ in await _told(scene, made)] == [len(before) + 1, len(before) + 2]


async def test_entries_go_with_what_consumers_took_and_an_effects_stays(scene: Scene) -> None:
    made = await retained.begun(scene)
    await scene.rows("insert into surefoot.inbox values ('nobody', %s, 'default')", f"{made.first}#news:0")
    await retained.over(scene, made)
    await retained.aged(scene, made)
    await retained.spoil(scene, made, "undelivered")
    assert (await _part(scene, "outbox")).kept == {WHY["undelivered"]: 1}
    await retained.spoil(scene, made, "undelivered", there=False)
    batch = await _part(scene, "outbox")
    assert (batch.items, batch.rows) == (1, 3)
    assert await scene.rows("select entry_id from surefoot.outbox_entries") == [(made.first,)]
    assert await scene.rows("select entry_id from surefoot.inbox") == []


async def test_what_is_taken_after_its_entry_was_removed_is_nobodys(scene: Scene) -> None:
    """A relay that was frozen for longer than entries are kept: it settles nothing, and what it brings with it is
    settled.
    """
    made, other = await retained.whole(scene), await retained.begun(scene)
    late, well = (_claimed(each) for each in (made, other))
    await _part(scene, "outbox")
    async with scene.database.all_tenants("relay.settle") as session:
        await outbox.settle(session, [outbox.End(late, "delivered"), outbox.End(well, "delivered")])
    assert await scene.rows("select entry_id from surefoot.inbox") == [(well.entry_id,)]


def _claimed(made: Made) -> Delivery:
    return Delivery(
        entry_id=EntryId(f"{made.first}#news:0"),
        consumer="nobody",
        attempt=1,
        attempts_max=20,
        worker_id=ADA,
        tenant=DEFAULT_TENANT,
        run_id=RunId(made.run_id),
        action_id=made.first,
        topic="news",
        payload={},
        created_at=retained.NOW,
    )


async def test_entries_of_no_run_go_once_they_are_delivered_everywhere(scene: Scene) -> None:
    for n, state in enumerate(("delivered", "discarded", "dead", "pending")):
        async with scene.database.transaction("put", DEFAULT_TENANT) as session:
            await outbox.put(
                session, entry_id=EntryId(f"e{n}"), tenant=DEFAULT_TENANT, run_id=None, action_id=None,
                topic="news", payload={}, consumers=("one", "two"), key=state,
            )  # fmt: skip
        settled = "null" if state == "pending" else "now() - interval '2 hours'"
        await scene.forced(
            f"update surefoot.outbox_deliveries set state = %s, settled_at = {settled} where entry_id = %s"
            " and consumer = 'one'", state, f"e{n}",
        )  # fmt: skip
    await scene.forced(
        "update surefoot.outbox_deliveries set state = 'delivered', settled_at = now() - interval '2 hours'"
        " where consumer = 'two'"
    )
    await scene.rows("update surefoot.outbox_entries set created_at = created_at - interval '2 hours'")
    async with scene.database.removing("retention.batch") as session:
        group = Group(DEFAULT_TENANT, "", KEEP_S)
        batch = await removal.entries_of_no_run(session, group, START, limit=10)
    assert (batch.items, batch.rows) == (2, 6)
    assert await scene.rows("select entry_id from surefoot.outbox_entries order by 1") == [("e2",), ("e3",)]
    async with scene.database.removing("retention.batch") as session:
        counters = await leftovers.idle_counters(session, leftovers.FIRST_KEY, limit=3)
        assert (counters.items, counters.next is not None) == (2, True)
    assert await scene.rows("select key from surefoot.outbox_keys order by 1") == [("dead",), ("pending",)]


# Artifacts.


async def _saved(scene: Scene, made: Made, name: str, content: bytes | Stored = b"bytes") -> artifacts.ArtifactRef:
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        return await artifacts.save(
            session,
            tenant=DEFAULT_TENANT,
            run_id=RunId(made.run_id),
            action_id=made.first,
            name=name,
            content=content,
            media_type="text/plain",
        )


async def _old_versions(scene: Scene) -> Batch:
    await scene.rows("update surefoot.artifacts set created_at = created_at - interval '2 hours'")
    async with scene.database.removing("retention.batch") as session:
        return await removal.old_versions(session, GROUP, START, limit=10)


async def test_the_number_of_a_version_that_was_removed_is_given_to_no_other_bytes(scene: Scene) -> None:
    made = await retained.begun(scene)
    for _ in range(2):
        await _saved(scene, made, "minutes")
    await retained.over(scene, made)
    await retained.aged(scene, made)
    assert (await retained.removed(scene))[0] == {made.run_id}
    other = await retained.begun(scene)
    assert (await _saved(scene, other, "minutes")).version == 3
    async with scene.database.removing("retention.batch") as session:
        assert (await leftovers.numbers(session, keys_s=FOREVER, limit=10)).items == 1, "which is no news any more"
    await retained.over(scene, other)
    await retained.aged(scene, other)
    await retained.removed(scene)
    async with scene.database.removing("retention.batch") as session:
        assert (await leftovers.numbers(session, keys_s=FOREVER, limit=10)).items == 0
    await scene.rows("update surefoot.artifact_numbers set removed_at = removed_at - interval '2 hours'")
    async with scene.database.removing("retention.batch") as session:
        await leftovers.numbers(session, keys_s=KEYS_S, limit=10)
    assert (await _saved(scene, await retained.begun(scene), "minutes")).version == 1


async def test_versions_go_that_were_replaced_and_that_nothing_refers_to(scene: Scene) -> None:
    made, going_on = await retained.begun(scene), await retained.begun(scene)
    stored = Stored("0" * 64, 5, None, "file:///a", "objects/1")
    await scene.rows("insert into surefoot.staged_objects values ('objects/1', 'default', 'file:///a')")
    await _saved(scene, made, "report", stored)
    for version in range(2, 5):
        await _saved(scene, made, "report", f"version {version}".encode())
    await retained.effect(scene, going_on, {"of": [(await _saved(scene, going_on, "mine", b"version 2")).model_dump()]})
    assert (await _old_versions(scene)).items == 0, "its run goes on"
    await retained.over(scene, made)
    batch = await _old_versions(scene)
    assert (batch.items, batch.kept) == (2, {"something refers to it": 1})
    left = await scene.rows("select version from surefoot.artifacts where name = 'report' order by 1")
    assert left == [(2,), (4,)], "what is referred to, and the last one"
    assert await scene.rows("select object from surefoot.staged_objects") == [("objects/1",)], (
        "the sweeper's from now on"
    )


# What belongs to no run.


async def test_workers_go_that_ended_long_ago_and_that_nothing_goes_by(scene: Scene) -> None:
    async with scene.database.all_tenants("register") as session:
        for name in ("gone", "claims", "executes", "lately"):
            await register(session, WorkerId(name))
    await scene.rows(
        "update surefoot.workers set state = 'dead', ended_at = now()"
        " - case worker_id when 'lately' then interval '1 s' else interval '2 hours' end"
        " where worker_id in ('gone', 'claims', 'executes', 'lately')"
    )
    made = await retained.begun(scene)
    await scene.rows(
        "update dbos.workflow_status set executor_id = 'executes' where workflow_uuid = %s", f"{made.run_id}:0"
    )
    await scene.forced(
        "update surefoot.outbox_deliveries set state = 'claimed', worker_id = 'claims', lease_until = now(),"
        " settled_at = null where consumer = 'nobody'"
    )
    async with scene.database.removing("retention.batch") as session:
        assert (await leftovers.workers(session, keep_s=KEEP_S, limit=10)).items == 1
    left = await scene.rows("select worker_id from surefoot.workers order by 1")
    assert [name for (name,) in left] == ["ada", "bob", "claims", "eve", "executes", "lately"]


async def test_what_would_go_is_counted_once_and_to_its_end_however_much_it_is(scene: Scene) -> None:
    async with scene.database.all_tenants("register") as session:
        await register(session, WorkerId("old"))
    await scene.rows("update surefoot.workers set state = 'dead', ended_at = now() - interval '2 hours'")
    ((names,),) = await scene.rows(
        "select string_agg(quote_ident(column_name), ', ') from information_schema.columns where table_schema ="
        " 'surefoot' and table_name = 'workers' and column_name <> 'worker_id'"
    )
    await scene.rows(
        f"insert into surefoot.workers (worker_id, {names}) select 'old ' || n, {names} from surefoot.workers,"
        " generate_series(1, 600) n where worker_id = 'old'"
    )
    ((there,),) = await scene.rows("select count(*) from surefoot.workers")
    loop = Retention(scene.database, Keep(workers=KEEP_S), lambda: None, rest=0)
    async with asyncio.timeout(20):
        dry = await loop.go_through("workers", by="ada", dry=True)
    assert (dry.items, dry.more) == (there, False)
    assert await scene.rows("select count(*) from surefoot.workers") == [(there,)]
    done = await loop.go_through("workers", by="ada")
    assert (done.items, done.more) == (there, False)


async def test_tokens_go_that_are_good_for_nothing_for_long(scene: Scene) -> None:
    for name, expires, revoked in (("good", 1, None), ("expired", -3, None), ("revoked", 1, -3), ("lately", 1, 0)):
        await scene.rows(
            "insert into surefoot.api_tokens (token_id, tenant, principal, secret_hash, created_by, expires_at,"
            " revoked_at, revoked_by) values (%s, 'default', 'ada', repeat('0', 64), 'test',"
            " now() + make_interval(hours => %s), now() + make_interval(hours => %s::int),"
            " case when %s::int is not null then 'eve' end)",
            name, expires, revoked, revoked,
        )  # fmt: skip
    async with scene.database.removing("retention.batch") as session:
        assert (await leftovers.tokens(session, keep_s=KEEP_S, limit=10)).items == 2
    assert await scene.rows("select token_id from surefoot.api_tokens order by 1") == [("good",), ("lately",)]


# Policies.


async def test_what_is_said_of_an_agent_counts_before_what_is_said_of_all_and_that_before_the_setting(
    scene: Scene,
) -> None:
    async def kept_s(default_s: float = FOREVER) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        async with scene.database.removing("look") as session:
            for tenant in ("default", "b"):
                for agent in (AGENT, "another"):
                    said = text("select surefoot.keep_s(:tenant, :agent, 'runs', :default_s)")
                    row = (
                        await session.execute(said, {"tenant": tenant, "agent": agent, "default_s": default_s})
                    ).one()
                    found[tenant, agent] = row[0]
        return found

    async def keep(keep_s: float | None, agent: str | None = None, tenant: str = DEFAULT_TENANT) -> None:
        async with scene.database.all_tenants("retention.set") as session:
            await retention.set_policy(session, Tenant(tenant), "runs", agent=agent, keep_s=keep_s, by="eve")

    await scene.rows("insert into surefoot.tenants (tenant) values ('b')")
    everywhere = [(tenant, agent) for tenant in ("default", "b") for agent in (AGENT, "another")]
    assert await kept_s(60) == dict.fromkeys(everywhere, 60)
    await keep(5)
    assert await kept_s() == {**dict.fromkeys(everywhere, FOREVER), ("default", AGENT): 5, ("default", "another"): 5}
    await keep(7, AGENT)
    assert await kept_s(60) == {**dict.fromkeys(everywhere, 60), ("default", AGENT): 7, ("default", "another"): 5}
    await keep(FOREVER, AGENT)
    assert (await kept_s(60))["default", AGENT] == FOREVER
    await keep(None, AGENT)
    assert (await kept_s(60))["default", AGENT] == 5
    await keep(None)
    assert await kept_s(60) == dict.fromkeys(everywhere, 60)
    with pytest.raises(NotFound, match="No tenant 'nowhere'"):
        await keep(5, tenant="nowhere")


async def test_only_who_has_something_that_is_old_enough_is_gone_through(scene: Scene) -> None:
    async def groups(kind: retention.PolicyKind) -> list[tuple[str, str, float]]:
        async with scene.database.removing("look") as session:
            found = await retention.groups(session, kind, default_s=KEEP_S, tenant=None)
        return [(group.tenant, group.agent, group.keep_s) for group in found]

    kinds = [kind for kind in retention.POLICY_KINDS if kind != "keys"]
    await retained.whole(scene, aged_too=False)
    assert [await groups(kind) for kind in kinds] == [[]] * len(kinds)
    await retained.whole(scene)
    await scene.rows("update surefoot.artifacts set created_at = created_at - interval '2 hours'")
    assert [await groups(kind) for kind in kinds] == [[("default", AGENT, KEEP_S)]] * len(kinds)
    for part in ("messages", "events", "outbox"):
        await _part(scene, part)
        assert await groups(part) == []
