"""What a new epoch does to effects, runs and workers, and who begins one."""

import asyncio
from typing import Any

import psycopg
import pytest

from steps import Absent, Found
from tests.races.driven import Driven, Other
from tests.races.scenes import ADA, Scene, question
from transactions import DEFAULT_TENANT, Conflict, Database, Fenced, RunState, epochs, revisions
from transactions.access import API
from transactions.database import connector, fetch_all, is_transient
from transactions.epochs import Begun
from transactions.segments import Ending
from transactions.whereabouts import Whereabouts, looking

OTHER_SIDE = {
    # What the other side can say, what it says, what was sent by the end of it, and how the effect stands then.
    "it was done": ("verify", Found(7), [], ("SUCCEEDED", None, "delivered", "queued")),
    "it was not done": ("verify", Absent(), [2], ("SUCCEEDED", None, "delivered", "queued")),
    "it honours the key": ("idempotent", None, [2], ("SUCCEEDED", None, "delivered", "queued")),
    "nobody can tell": ("at_most_once", None, [], ("UNKNOWN", "unknown", "parked", "waiting")),
}


async def begin(scene: Scene) -> Begun:
    """An epoch that began a minute ago, and workers that have started again."""
    async with scene.database.all_tenants("epoch.begin") as session:
        begun = await epochs.begin(session, why="a test", by="eve")
    await scene.rows("update surefoot.workers set state = 'live', ended_at = null, reason = null")
    await scene.rows(
        "update surefoot.epochs set begun_at = begun_at - interval '1 minute',"
        " stood_at = stood_at - interval '1 minute' where epoch = %s",
        begun.epoch,
    )
    return begun


@pytest.mark.parametrize("case", OTHER_SIDE)
async def test_what_is_prepared_counts_as_sent_and_is_looked_for(scene: Scene, effects: Any, case: str) -> None:
    safety, verdict, sent, stands = OTHER_SIDE[case]
    other = Other([1], [verdict])
    driven: Driven = await effects(other, safety=safety, attempt_s=5)
    begun = await begin(scene)
    assert (begun.epoch, begun.effects, begun.runs, begun.workers) == (2, 1, 1, 3)
    await driven.drive()
    assert (other.sent, await driven.state()) == (sent, stands)
    assert other.asked == (safety == "verify")
    if case == "nobody can tell":
        await driven.says("absent")
        await driven.drive()
        assert other.sent == [2]


async def test_a_key_that_may_be_forgotten_there_is_not_sent_again(scene: Scene, effects: Any) -> None:
    other = Other([1])
    driven: Driven = await effects(other, safety="idempotent", elapsed_s_max=24 * 3600.0)
    await begin(scene)
    await scene.rows("update surefoot.epochs set stood_at = stood_at - interval '2 days' where epoch = 2")
    await driven.drive()
    assert other.sent == []
    assert (await driven.state())[0::2] == ("UNKNOWN", "parked")
    assert "its key may not be known there any more" in (await driven.look())["why"]


async def test_what_is_passing_is_tried_again_though_the_lost_part_is_long_ago(scene: Scene, effects: Any) -> None:
    other = Other([ConnectionRefusedError("no"), 1], [Absent()])
    driven: Driven = await effects(other, safety="verify", attempt_s=5, elapsed_s_max=3600.0)
    await begin(scene)
    await scene.rows("update surefoot.epochs set stood_at = stood_at - interval '2 days' where epoch = 2")
    await driven.drive()
    assert (other.sent, (await driven.state())[0]) == ([2, 3], "SUCCEEDED")


async def test_a_look_costs_none_of_its_attempts(scene: Scene, effects: Any) -> None:
    other = Other([1], [Absent()])
    driven: Driven = await effects(other, safety="verify", attempt_s=5, attempts_max=1)
    for _ in range(2):
        await begin(scene)
    await driven.drive()
    assert other.sent == [2]


async def test_what_is_on_its_way_is_believed_to_be_absent_later(scene: Scene) -> None:
    _, action_id, _ = await scene.unknown(doubted=False)
    await scene.rows("update surefoot.actions set attempt_deadline_at = clock_timestamp() - interval '1 hour'")
    begun = await begin(scene)
    [[later]] = await scene.rows(
        "select attempt_deadline_at > begun_at from surefoot.actions, surefoot.epochs"
        " where action_id = %s and epoch = %s",
        action_id,
        begun.epoch,
    )
    assert later


async def test_an_effect_that_may_have_been_done_is_not_cancelled_but_on_the_desk(scene: Scene, effects: Any) -> None:
    other = Other([1])
    driven: Driven = await effects(other, safety="verify")
    await begin(scene)
    await scene.cancel(driven.run_id)
    assert (await driven.state())[0::2] == ("UNKNOWN", "parked")
    assert (await driven.look())["why"] == (
        "run cancelled by ada, and it may have been done in what the restored database has lost: "
        "a person has to say what happened"
    )


async def test_an_effect_that_may_have_been_done_is_not_changed(scene: Scene) -> None:
    execution = await scene.running()
    request = scene.request(execution, 0, gated=True)
    async with scene.database.transaction("calls", execution.tenant) as session:
        await scene.prepare(session, execution, request)
    await begin(scene)
    with pytest.raises(Conflict, match="cannot be changed, for it may have been done in what the restored database"):
        async with scene.database.transaction("revise", execution.tenant) as session:
            await revisions.revise(session, request.action_id, question(execution, request), by="ada")


async def test_what_a_run_of_before_prepares_later_is_looked_for_and_what_a_new_one_does_is_not(scene: Scene) -> None:
    before = await scene.start()
    await begin(scene)
    after = await scene.start()
    flags: list[bool] = []
    for run_id in (before, after):
        await scene.dequeue(run_id, 0, ADA)
        begun = await scene.begin(run_id, 0, ADA)
        assert begun is not None
        execution = begun.execution
        async with scene.database.transaction("calls", execution.tenant) as session:
            await scene.prepare(session, execution, scene.request(execution, 0, gated=False))
        [[flag]] = await scene.rows("select verify_first from surefoot.actions where run_id = %s", run_id)
        flags.append(flag)
        await scene.end(execution, Ending(state=RunState.FAILED, turns=1, usage={}, reason="enough"))
    assert flags == [True, False]


async def test_an_execution_of_before_begins_nothing_more(scene: Scene) -> None:
    execution = await scene.running()
    await begin(scene)
    with pytest.raises(Fenced):
        await scene.end(execution, Ending(state=RunState.COMPLETED, turns=1, usage={}, output=1))
    [[generation]] = await scene.rows("select generation from surefoot.runs where run_id = %s", execution.run_id)
    assert generation > execution.generation + 1000, "beyond any that the lost part may have had"


# Who begins one.


async def test_the_first_worker_notes_where_the_database_is_and_the_next_finds_it_there(scene: Scene) -> None:
    for _ in range(2):
        async with scene.database.all_tenants("worker.arrive") as session:
            here, begun = await epochs.arrive(session, by="w")
        assert begun is None
        assert None not in (here.system_id, here.timeline, here.database_id)
    assert await scene.rows("select epoch, system_id from surefoot.epochs") == [(1, here.system_id)]


@pytest.mark.parametrize(
    ("was", "said"),
    [
        ("system_id = '1', timeline = 1, database_id = '1'", "is on another cluster"),
        ("timeline = 99, database_id = '1'", "of its log, and was on 99: it was restored, or a standby has taken over"),
        ("database_id = '1'", "on its cluster, and was 1: it was restored or copied"),
    ],
)
async def test_of_several_workers_that_find_it_elsewhere_one_begins_an_epoch(scene: Scene, was: str, said: str) -> None:
    async with scene.database.all_tenants("worker.arrive") as session:
        await epochs.arrive(session, by="w")
    await scene.rows(f"update surefoot.epochs set {was}")

    async def arrive(n: int) -> Begun | None:
        async with scene.database.all_tenants("worker.arrive") as session:
            return (await epochs.arrive(session, by=f"w{n}"))[1]

    found = await asyncio.gather(*(arrive(n) for n in range(5)))
    assert len([begun for begun in found if begun is not None]) == 1
    [[why]] = await scene.rows("select why from surefoot.epochs where epoch = 2")
    assert said in why


# What is left of a table, and of its number, after `drop schema` and a dump that is put back in its place.
PUT_BACK = """
alter table surefoot.epochs rename to lost;
create table surefoot.epochs (like surefoot.lost including all);
insert into surefoot.epochs select * from surefoot.lost;
grant select, insert, update on surefoot.epochs to surefoot_worker;
"""


async def test_a_dump_that_is_put_back_into_the_same_database_is_another_place(scene: Scene) -> None:
    found: list[Begun | None] = []
    for _ in range(2):
        async with scene.database.all_tenants("worker.arrive") as session:
            found.append((await epochs.arrive(session, by="w"))[1])
        await scene.admin.execute(PUT_BACK.encode())
        await scene.admin.execute(b"drop table surefoot.lost")
    assert found[0] is None
    assert found[1] is not None
    [[why]] = await scene.rows("select why from surefoot.epochs where epoch = 2")
    assert "on its cluster, and was" in why


async def test_what_is_prepared_while_an_epoch_begins_is_looked_for_as_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of before commits after the first look, and before its run is fenced."""
    execution = await scene.running()

    async def meanwhile(session: Any, statement: Any, **parameters: Any) -> Any:
        if statement is epochs._EPOCHS["fence_open_runs"]:
            async with scene.database.transaction("calls", execution.tenant) as other:
                await scene.prepare(other, execution, scene.request(execution, 0, gated=False))
        return await fetch_all(session, statement, **parameters)

    monkeypatch.setattr(epochs, "fetch_all", meanwhile)
    assert (await begin(scene)).effects == 1
    assert await scene.rows("select verify_first from surefoot.actions") == [(True,)]


async def test_nothing_but_a_look_or_an_end_takes_back_that_it_is_looked_for(scene: Scene, effects: Any) -> None:
    driven: Driven = await effects(Other([1], [Absent()]), safety="verify")
    await begin(scene)
    with pytest.raises(psycopg.errors.CheckViolation, match="has to be looked for"):
        await scene.rows("update surefoot.actions set verify_first = false where run_id = %s", driven.run_id)
    await driven.drive()
    assert (await driven.state())[0] == "SUCCEEDED"


async def test_a_worker_ends_before_it_acts_on_a_connection_to_another_place(database_url: str) -> None:
    database, ended = Database(database_url), list[str]()
    try:
        async with database.all_tenants("worker.arrive") as session:
            here, _ = await epochs.arrive(session, by="w")
        await database.engine.dispose()
        database.stay_at(here, ended.append)
        async with database.transaction("read", DEFAULT_TENANT):
            assert ended == []
        await database.engine.dispose()
        database.stay_at(Whereabouts(here.system_id, 99, here.database_id), ended.append)
        with pytest.raises(Fenced):
            async with database.transaction("read", DEFAULT_TENANT):
                pass
        assert [why[:31] for why in ended] == ["The database is on timeline 1 o"]
    finally:
        await database.close()


async def test_nor_does_its_engine(database_url: str) -> None:
    database, ended = Database(database_url), list[str]()
    try:
        async with database.all_tenants("worker.arrive") as session:
            here, _ = await epochs.arrive(session, by="w")
    finally:
        await database.close()
    connector(database_url, role="surefoot_worker", look=looking(here, ended.append))().close()
    assert ended == []
    elsewhere = Whereabouts(here.system_id, 99, here.database_id)
    with pytest.raises(Fenced):
        connector(database_url, role="surefoot_worker", look=looking(elsewhere, ended.append))()
    assert [why[:31] for why in ended] == ["The database is on timeline 1 o"]


async def test_a_standby_is_a_database_that_is_away(database_url: str) -> None:
    """It says no timeline; promoted under an open connection it would be another place, and nobody would look."""
    replaying = (
        "create or replace function surefoot.whereabouts(out system_id text, out timeline integer,"
        " out database_id text, out recovering boolean) language sql"
        " as $$ select null::text, null::integer, null::text, true $$"
    )
    with psycopg.connect(database_url, autocommit=True) as owner:
        [before] = owner.execute("select pg_get_functiondef('surefoot.whereabouts'::regproc)").fetchall()
        owner.execute(replaying)
        database = Database(database_url)
        try:
            database.stay_at(Whereabouts("1", 1, "2"), pytest.fail)
            with pytest.raises(Exception, match="this is a standby") as raised:
                async with database.transaction("read", DEFAULT_TENANT):
                    pass
            assert is_transient(raised.value)
            look = looking(Whereabouts("1", 1, "2"), pytest.fail)
            with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection):
                connector(database_url, role="surefoot_worker", look=look)()
        finally:
            owner.execute(before[0])
            await database.close()


async def test_where_the_server_does_not_say_nothing_is_concluded() -> None:
    known = Whereabouts("1", 1, "2")
    assert known.is_at(Whereabouts())
    assert Whereabouts().is_at(known)
    assert not known.is_at(Whereabouts("1", 2, None))


async def test_people_who_serve_the_api_cannot_begin_one(scene: Scene, database_url: str) -> None:
    people = Database(database_url, access=API)
    try:
        with pytest.raises(Exception, match="permission denied"):
            async with people.all_tenants("epoch.begin") as session:
                await epochs.begin(session, why="a test", by="eve")
    finally:
        await people.close()
