"""Schedules, by the product's own functions: what was missed, what overlaps, what is refused; two who come at once."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.races.interleave import Pace, in_lanes
from tests.races.scenes import AGENT, Scene
from tests.races.test_queue import SEED, limit
from transactions import DEFAULT_TENANT, InvalidInput, NotFound, principals, schedules
from transactions.schedules import Fired, Schedule

KEYS = "select idempotency_key, input ->> 'n' from surefoot.runs order by 1"


async def put(scene: Scene, name: str = "minutely", *, by: str = "opal", **more: Any) -> None:
    given: dict[str, Any] = {"agent": AGENT, "input": {"n": 1}, "cron": "* * * * *", **more}
    await scene.administrate(
        lambda session: principals.put(session, DEFAULT_TENANT, "opal", roles=["operator"], by="test")
    )
    async with scene.database.transaction("schedule.set", DEFAULT_TENANT) as session:
        await schedules.put(session, DEFAULT_TENANT, Schedule(name, **given), by=by)


async def late(scene: Scene, minutes: int) -> datetime:
    """All of them were due so many minutes ago; when that was."""
    ago = "date_trunc('minute', clock_timestamp()) - make_interval(mins => %s)"
    rows = await scene.rows(f"update surefoot.schedules set next_at = {ago} returning next_at", minutes)
    return rows[0][0]


async def fire(scene: Scene) -> Sequence[Fired]:
    async with scene.database.all_tenants("schedule.fire") as session:
        return await schedules.fire_due(session)


async def shown(scene: Scene) -> Any:
    async with scene.database.transaction("read", DEFAULT_TENANT) as session:
        [row] = await schedules.page(session, DEFAULT_TENANT)
    return row


@pytest.mark.parametrize(("missed", "started"), [("last", [0]), ("all", [4, 3, 2, 1, 0]), ("none", [0])])
async def test_of_those_missed_as_many_are_started_as_it_says(scene: Scene, missed: Any, started: list[int]) -> None:
    await put(scene, missed=missed, overlap="allow")
    first = await late(scene, 4)
    [fired] = await fire(scene)
    now = first + timedelta(minutes=4)
    assert await scene.rows(KEYS) == [
        (f"schedule:minutely:{now - timedelta(minutes=n):%Y-%m-%dT%H:%M:%SZ}", "1") for n in started
    ]
    assert len(fired.run_ids) == len(started)
    row = await shown(scene)
    assert (row["next_at"], row["last_at"], row["last_why"]) == (now + timedelta(minutes=1), now, None)
    assert row["last_run_id"] == fired.run_ids[-1]
    assert await fire(scene) == []


async def test_what_is_late_is_not_started_where_none_that_was_missed_is(scene: Scene) -> None:
    await put(scene, cron="0 * * * *", missed="none")
    await scene.rows(
        "update surefoot.schedules set next_at = date_trunc('hour', clock_timestamp()) - interval '1 hour'"
    )
    await scene.rows("update surefoot.schedules set next_at = next_at - interval '1 hour'")
    [fired] = await fire(scene)
    now = datetime.now(UTC)
    if now.minute == 0:
        return  # it is due right now
    assert (fired.run_ids, fired.why) == ([], "no worker was there when it was due")
    assert (await shown(scene))["next_at"] > now


async def test_while_the_run_before_is_not_over_the_next_is_not_started_unless_it_may(scene: Scene) -> None:
    await put(scene, missed="all")
    await late(scene, 1)
    [fired] = await fire(scene)
    [run_id] = fired.run_ids
    assert fired.why == f"run {run_id}, which it started before, was not over"
    await late(scene, -1)
    await scene.rows("update surefoot.schedules set next_at = next_at - interval '1 minute'")
    [fired] = await fire(scene)
    assert fired.run_ids == []
    await scene.cancel(run_id)
    await late(scene, 0)
    await scene.rows("update surefoot.runs set idempotency_key = null")  # as if it were of another minute
    [fired] = await fire(scene)
    assert len(fired.run_ids) == 1


async def test_a_time_at_which_the_queue_is_full_stays_due(scene: Scene) -> None:
    await put(scene)
    await limit(scene, running_max=0, queued_max=0)
    at = await late(scene, 0)
    [fired] = await fire(scene)
    assert fired.run_ids == []
    assert fired.why is not None
    assert "is full" in fired.why
    assert (await shown(scene))["next_at"] in (at, at + timedelta(minutes=1))
    await scene.rows("delete from surefoot.limits")
    [fired] = await fire(scene)
    assert len(fired.run_ids) == 1


async def test_what_is_late_for_the_queue_was_full_says_so(scene: Scene) -> None:
    await put(scene, cron="0 0 29 2 *", missed="none")
    await limit(scene, running_max=0, queued_max=0)
    full = 'The queue of tenant "default" is full'
    await scene.rows("update surefoot.schedules set next_at = clock_timestamp() - interval '1 second'")
    await fire(scene)
    assert (await shown(scene))["last_why"].startswith(f"it stays due: {full}")
    await scene.rows("update surefoot.schedules set next_at = next_at - interval '2 minutes'")
    [fired] = await fire(scene)
    assert fired.run_ids == []
    assert (await shown(scene))["last_why"].startswith(f"it was not started within 60 s: {full}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("update surefoot.principals set disabled_at = now() where name = 'opal'", "opal was disabled at "),
        ("update surefoot.principals set roles = '{viewer}' where name = 'opal'", "This needs the role operator"),
        ("delete from surefoot.principals where name = 'opal'", "No principal 'opal' in tenant default"),
        ("update surefoot.schedules set principal = 'unauthenticated'", "No principal 'unauthenticated'"),
        ("delete from surefoot.agents", "No agent named"),
        ("update surefoot.schedules set time_zone = 'Europe/Atlantis'", "'Europe/Atlantis' is no time zone"),
    ],
)
async def test_what_may_not_start_is_told_and_holds_up_no_other(scene: Scene, change: str, why: str) -> None:
    await put(scene)
    await late(scene, 0)
    await scene.rows("update surefoot.tenants set tokens_since = now()")
    await scene.rows(change)
    await put(scene, "other", by="ada", agent=AGENT, cron="* * * * *")
    await scene.rows("update surefoot.principals set roles = '{operator}' where name = 'ada'")
    if "opal" in change:
        await scene.rows(change)
    await scene.rows("update surefoot.schedules set next_at = now() where name = 'other'")
    fired = {one.name: one for one in await fire(scene)}
    assert fired["minutely"].run_ids == []
    assert (fired["minutely"].why or "").startswith(why)
    assert len(fired["other"].run_ids) == (0 if "agents" in change else 1)
    assert await scene.rows("select count(*) from surefoot.schedules where next_at <= now()") == [(0,)]


async def test_one_set_before_there_were_tokens_starts_while_there_are_none(scene: Scene) -> None:
    await put(scene, by="unauthenticated")
    await late(scene, 0)
    [fired] = await fire(scene)
    assert len(fired.run_ids) == 1


async def test_it_is_paused_resumed_changed_and_removed(scene: Scene) -> None:
    await put(scene)
    async with scene.database.transaction("schedule.pause", DEFAULT_TENANT) as session:
        await schedules.pause(session, DEFAULT_TENANT, "minutely", by="ada")
    await put(scene, cron="0 9 * * *")
    row = await shown(scene)
    assert (row["enabled"], row["next_at"], row["cron"], row["changed_by"]) == (False, None, "0 9 * * *", "opal")
    async with scene.database.transaction("schedule.resume", DEFAULT_TENANT) as session:
        await schedules.resume(session, DEFAULT_TENANT, "minutely", by="ada")
        await schedules.resume(session, DEFAULT_TENANT, "minutely", by="ada")
    assert (await shown(scene))["next_at"].hour == 9
    async with scene.database.transaction("schedule.remove", DEFAULT_TENANT) as session:
        await schedules.remove(session, DEFAULT_TENANT, "minutely", by="ada")
        assert await schedules.page(session, DEFAULT_TENANT) == []
        for change in (schedules.remove, schedules.pause, schedules.resume):
            with pytest.raises(NotFound, match="surefoot schedules list"):
                await change(session, DEFAULT_TENANT, "minutely", by="ada")
    await put(scene)
    assert (await shown(scene))["enabled"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"name": "a b"}, "is no name for a schedule"),
        ({"name": ""}, "is no name for a schedule"),
        ({"cron": "every day"}, "has not five fields"),
        ({"time_zone": "Berlin"}, "is no time zone"),
        ({"priority": 1000}, "A priority is from -100 to 100"),
        ({"input": {"n": "a\0"}}, "contains a NUL character"),
        ({"input": [1] * 500_000}, "The input is over 1048576 bytes"),  # with the spaces that Postgres puts
    ],
)
async def test_a_schedule_that_is_none_is_refused(scene: Scene, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        await put(scene, **more)


async def test_two_who_come_at_once_start_each_run_once(scene: Scene, pace: Pace) -> None:
    async def play(seed: int) -> None:
        name = f"s{seed}"
        await put(scene, name, missed="all", overlap="allow", input={"n": seed})
        await scene.rows(
            "update surefoot.schedules set next_at = date_trunc('minute', clock_timestamp()) - interval '2 minutes'"
            " where name = %s",
            name,
        )
        stage = scene.stage(seed)
        for i in range(2):
            stage.actor(f"worker {i}", lambda: fire(scene))
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            actor.outcome()
        rows = await scene.rows("select idempotency_key from surefoot.runs where input ->> 'n' = %s", str(seed))
        assert len(rows) == len(set(rows)) >= 3, f"seed {seed}:\n" + "\n".join(stage.trace)

    await in_lanes(range(SEED, SEED + 15), play, lanes=1)


async def test_a_batch_of_schedules_is_one_commit_each_with_its_own_fate(scene: Scene) -> None:
    for n in range(25):
        await put(scene, f"s{n:02}", input={"n": n})
    await late(scene, 0)
    fired = await asyncio.gather(fire(scene), fire(scene))
    names = [one.name for batch in fired for one in batch]
    assert len(names) == len(set(names)) == 25
