"""Whoever of the workers dies when a run of a schedule is due: it is started, once, as one of who may start it."""

import asyncio
from typing import Any

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import acting, until
from tests.stage import Stage
from transactions import schedules

KEYS = "select idempotency_key as key, principal, state from surefoot.runs order by idempotency_key"


def test_a_schedule_starts_each_of_its_runs_once(stage: Stage) -> None:
    due_for_minutes(stage, 4)
    for point in ("schedule.fire.before_commit", "schedule.fire.after_commit"):
        assert stage.worker(point).until_it_dies() == -9
    stage.working()
    stage.working()
    until("they are over", lambda: over(stage) >= 5)
    before = stage.rows(KEYS)
    assert len({row["key"] for row in before}) == len(before) in (5, 6)  # one more when a minute went by meanwhile
    assert {row["principal"] for row in before} == {"ada"}
    rewind(stage, 4)  # and if all of it came once more
    assert_nothing_new(stage, before)


def test_control_without_a_key_of_their_own_they_start_again(stage: Stage) -> None:
    due_for_minutes(stage, 4)
    stage.working(broken=no_key)
    until("they are over", lambda: over(stage) >= 5)
    rewind(stage, 4)
    until("they are over again", lambda: over(stage) >= 10)


def test_who_may_start_nothing_any_more_starts_nothing(stage: Stage) -> None:
    due_for_minutes(stage, 4)
    asyncio.run(as_ada(stage, disabled=True))
    stage.working()
    said = "select last_why, next_at > now() as moved_on from surefoot.schedules"
    until("it was refused", lambda: stage.rows(said)[0]["moved_on"])
    assert stage.rows(said)[0]["last_why"].startswith("ada was disabled at ")
    assert stage.rows(KEYS) == []


def due_for_minutes(stage: Stage, minutes: int) -> None:
    """A schedule of Ada's that is due each minute, and was not looked at for some: each of them is to be started."""
    stage.announce()
    asyncio.run(as_ada(stage))
    rewind(stage, minutes)


def rewind(stage: Stage, minutes: int) -> None:
    minute = "date_trunc('minute', clock_timestamp()) - make_interval(mins => %s)"
    stage.rows(f"update surefoot.schedules set next_at = {minute}", minutes)


def over(stage: Stage) -> int:
    return sum(row["state"] == "completed" for row in stage.rows(KEYS))


def assert_nothing_new(stage: Stage, before: list[dict[str, Any]]) -> None:
    until("it is moved on", lambda: stage.rows("select next_at > now() as on from surefoot.schedules")[0]["on"])
    late = [row for row in stage.rows(KEYS) if row["key"] > before[-1]["key"]]  # of a minute that has come since
    assert [row["key"] for row in stage.rows(KEYS)] == [row["key"] for row in before + late]


async def as_ada(stage: Stage, *, disabled: bool = False) -> None:
    surefoot = Surefoot(stage.database_url, AGENTS)
    try:
        if disabled:
            await surefoot.disable_principal("ada")
            return
        ada = await acting(surefoot, "ada", "operator")
        await ada.set_schedule("minutely", "scripted", {"turns": []}, cron="* * * * *", missed="all", overlap="allow")
    finally:
        await surefoot.close()


def no_key() -> None:
    begin = schedules.runs.start

    async def without(*args: Any, key: Any, **more: Any) -> Any:
        return await begin(*args, key=None, **more)

    schedules.runs.start = without
