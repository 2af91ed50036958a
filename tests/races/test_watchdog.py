"""The watchdog's duties on what a death left behind: fenced before handed over, safe twice, safe when it dies too."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app import machine, watchdog
from app.router import Router
from app.watchdog import Watchdog
from tests.races import invariants
from tests.races.interleave import Pace, SteppedDatabase
from tests.races.scenes import ADA, BOB, EVE, VERSION, Scene, Waiting, register
from tests.races.test_queue import slots, start
from transactions import Conflict, Execution, Fenced, RunId, RunState, Session, WorkerId
from transactions.connecting import application_name
from transactions.segments import Ending

INTERLEAVINGS = int(os.environ.get("SUREFOOT_RACES", "1000")) // 20
SEED = int(os.environ.get("SUREFOOT_RACES_SEED", "1"))
DEAD, GONE, OLD = WorkerId("dead"), WorkerId("gone"), WorkerId("old")
OLD_VERSION = "report=0"
STALLS_MAX = 5
NO_SUCH_PID = 2**22 + 1

# Nothing of one interleaving is left for the watchdogs of the next.
_OVER = """
update surefoot.runs set state = 'held', reason = 'over' where ended_at is null;
update surefoot.segments set state = 'settled', outcome = 'over', turns = 0, settled_at = now() where state = 'open';
update surefoot.approvals set state = 'void', decided_at = now() where state = 'pending';
update dbos.workflow_status set status = 'SUCCESS';
"""
_ALL = text(
    "select workflow_uuid from dbos.workflow_status where status = 'PENDING' and executor_id = :executor_id"
    " and application_version = :version order by workflow_uuid"
)
_AGAIN = text(
    "update dbos.workflow_status set status = 'ENQUEUED', owner_xid = null"
    " where workflow_uuid = :id and status = 'PENDING' and executor_id = :executor_id returning workflow_uuid"
)
_CANCEL = text(
    "update dbos.workflow_status set status = 'CANCELLED', owner_xid = null"
    " where workflow_uuid = :id and status not in ('SUCCESS', 'ERROR')"
)


@dataclass(slots=True)
class Engine:
    """What `app.engine` asks of DBOS, statement for statement, without launching it."""

    database: SteppedDatabase
    handed_over: list[str] = field(default_factory=list)
    before: Callable[[str], Awaitable[None]] | None = None

    async def recover(self, executor_id: str) -> Sequence[str]:
        if self.before is not None:
            await self.before(executor_id)
        async with self.database.all_tenants("engine.look") as session:
            found = await session.execute(_ALL, {"executor_id": executor_id, "version": VERSION})
        ids = [row[0] for row in found]
        for workflow_id in ids:
            async with self.database.all_tenants("engine.recover") as session:
                done = await session.execute(_AGAIN, {"executor_id": executor_id, "id": workflow_id})
                self.handed_over += [row[0] for row in done]
        return ids

    async def cancel(self, workflow_ids: Sequence[str]) -> None:
        for workflow_id in workflow_ids:
            async with self.database.all_tenants("engine.cancel") as session:
                await session.execute(_CANCEL, {"id": workflow_id})


def _watchdog(scene: Scene, worker_id: WorkerId = ADA, database: SteppedDatabase | None = None) -> Watchdog:
    database = database or scene.database
    return Watchdog(
        database, worker_id, VERSION, 1.0, STALLS_MAX, lambda: None, Router(database, VERSION, grace_s=3600.0)
    )


@pytest.fixture
def engine(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine(scene.database)
    monkeypatch.setattr(watchdog, "engine", made)
    return made


@dataclass(frozen=True, slots=True)
class Ruins:
    """What the deaths left behind, by name, and how each run was before."""

    runs: Mapping[str, RunId]
    before: Mapping[str, Mapping[str, Any]]


async def _ruin(scene: Scene) -> Ruins:
    """A worker whose lease ran out, one whose process is gone, one of an old version; lost segments; late approvals."""
    runs: dict[str, RunId] = {}
    async with scene.database.all_tenants("register") as session:
        await register(session, DEAD)
        await register(session, GONE, pid=NO_SUCH_PID)
        await register(session, OLD, version=OLD_VERSION)
    runs["running"] = (await scene.running(worker_id=DEAD)).run_id
    runs["running elsewhere"] = (await scene.running(worker_id=GONE)).run_id
    runs["of a live worker"] = (await scene.running(worker_id=ADA)).run_id
    runs["claimed, not begun"] = await scene.start()
    await scene.dequeue(runs["claimed, not begun"], 0, DEAD)
    waiting = await scene.about_to_wait(["approval"])
    await scene.end(waiting.execution, waiting.ending())
    runs["ended, not recorded"] = waiting.run_id
    await scene.rows(
        "update dbos.workflow_status set executor_id = %s where workflow_uuid = %s", DEAD, f"{waiting.run_id}:0"
    )
    for name, change in {
        "gone from the engine": "delete from dbos.workflow_status where workflow_uuid = %s",
        "ended in the engine": "update dbos.workflow_status set status = 'ERROR' where workflow_uuid = %s",
        "of an old version": f"update dbos.workflow_status set executor_id = '{OLD}',"
        f" application_version = '{OLD_VERSION}' where workflow_uuid = %s",
        "recovered for an old version": f"update dbos.workflow_status set executor_id = '{OLD}', status = 'ENQUEUED',"
        f" application_version = '{OLD_VERSION}' where workflow_uuid = %s",
        "lost too often": "update dbos.workflow_status set status = 'ERROR' where workflow_uuid = %s",
        "given up, not cancelled": "update dbos.workflow_status set status = 'ERROR' where workflow_uuid = %s",
    }.items():
        runs[name] = (await scene.running()).run_id
        await scene.rows(change, f"{runs[name]}:0")
    given_up = runs["given up, not cancelled"]
    await scene.lose(given_up, 0)
    assert await scene.restart_lost(given_up, 0)
    await scene.rows("update dbos.workflow_status set status = 'ENQUEUED' where workflow_uuid = %s", f"{given_up}:0")
    for name in ("overdue, waiting", "overdue, running"):
        asked = await scene.about_to_wait(["approval", "follows"])
        runs[name] = asked.run_id
        await scene.overdue(asked.action(0))
        if name == "overdue, waiting":
            await scene.end(asked.execution, asked.ending())
    await scene.rows("update surefoot.segments set created_at = created_at - interval '1 minute'")
    await scene.rows("update surefoot.runs set stalls = %s where run_id = %s", STALLS_MAX - 1, runs["lost too often"])
    await scene.rows(
        "update surefoot.workers set lease_until = now() - interval '1 s' where worker_id = any(%s)", [DEAD, OLD]
    )
    await scene.rows("update surefoot.workers set machine = %s where worker_id = %s", machine.machine_id(), GONE)
    return Ruins(runs, {name: await scene.seen(run_id) for name, run_id in runs.items()})


async def _now(scene: Scene, ruins: Ruins) -> dict[str, Any]:
    """What the watchdog answers for, without numbers that count its rounds."""
    found: dict[str, Any] = {}
    for name, run_id in ruins.runs.items():
        seen = await scene.seen(run_id)
        if name != "gone from the engine":
            invariants.consistent(seen)
        found[name] = {
            "state": seen["state"],
            "segments": [(s["n"], s["state"], s["outcome"]) for s in seen["segments"]],
            "engine": sorted((row["id"].rpartition(":")[2], row["status"]) for row in seen["engine"]),
            "events": [event["kind"] for event in seen["events"]][len(ruins.before[name]["events"]) :],
            "approvals": [a["state"] for a in seen["approvals"]],
            "actions": [a["state"] for a in seen["actions"]],
            "waits": [(w["state"], w["outcome"]) for w in seen["waits"]],
        }
    found["workers"] = dict(await scene.rows("select worker_id, state from surefoot.workers"))
    return found


async def test_each_duty_is_done_and_nothing_else_is_touched(scene: Scene, engine: Engine) -> None:
    ruins = await _ruin(scene)

    async def fenced_before(executor_id: str) -> None:
        for name in ("running", "running elsewhere"):
            before, seen = ruins.before[name], await scene.seen(ruins.runs[name])
            if executor_id in (DEAD, GONE):
                assert seen["generation"] > before["generation"], "handed over before its generation was raised"

    engine.before = fenced_before
    await _watchdog(scene).run_once()
    found = await _now(scene, ruins)
    assert found["workers"] == {
        "ada": "live", "bob": "live", "eve": "live", "dead": "dead", "gone": "dead", "old": "dead"
    }  # fmt: skip
    handed = {"running", "running elsewhere", "claimed, not begun", "ended, not recorded", "of an old version"}
    assert sorted(engine.handed_over) == sorted(f"{ruins.runs[name]}:0" for name in handed)
    assert found["of a live worker"]["engine"] == [("0", "PENDING")]
    assert found["running"]["state"] == "running"
    assert found["claimed, not begun"]["state"] == "queued"
    assert found["ended, not recorded"]["state"] == "waiting"
    for name in ("of an old version", "recovered for an old version"):
        assert found[name]["state"] == "running"
        assert found[name]["segments"] == [(0, "open", None)]
        assert found[name]["events"] == ["segment.moved"]
        assert found[name]["engine"] == [("0", "ENQUEUED")]
    for name in ("gone from the engine", "ended in the engine"):
        assert found[name]["state"] == "queued"
        assert found[name]["segments"] == [(0, "settled", "lost"), (1, "open", None)]
        assert found[name]["events"] == ["segment.lost"]
        assert ("1", "ENQUEUED") in found[name]["engine"]
    assert found["lost too often"]["state"] == "held"
    assert found["given up, not cancelled"]["engine"] == [("0", "CANCELLED"), ("1", "ENQUEUED")]
    assert found["overdue, waiting"]["segments"] == [(0, "settled", "waiting"), (1, "open", None)]
    assert found["overdue, waiting"]["waits"] == [("settled", "denied"), ("settled", "denied")]
    for name in ("overdue, waiting", "overdue, running"):
        assert found[name]["approvals"] == ["expired"]
    seen = await scene.seen(ruins.runs["of a live worker"])
    assert seen["generation"] == ruins.before["of a live worker"]["generation"], "a live worker's run was fenced"
    engine.handed_over.clear()
    await _watchdog(scene).run_once()
    assert await _now(scene, ruins) == found
    assert engine.handed_over == []


async def test_what_code_of_before_left_to_wait_is_settled(scene: Scene, engine: Engine) -> None:
    """It settles an open segment only: one that waits for its turn, or is delayed, it leaves when it ends the run."""
    await slots(scene, 0)
    cancelled = await start(scene, not_before=datetime.now(UTC) + timedelta(hours=1))
    held, gone_on, kept = [await scene.start() for _ in range(3)]
    over = "update surefoot.runs set state = 'cancelled', reason = 'x', ended_at = now() where run_id = %s"
    await scene.rows(over, cancelled)
    await scene.rows("update surefoot.runs set state = 'held', reason = 'x' where run_id = %s", held)
    await scene.rows("update surefoot.runs set segment = 1 where run_id = %s", gone_on)
    stranded = "select run_id from surefoot.stranded where run_id = any(%s)"
    assert len(await scene.rows(stranded, [cancelled, held, gone_on, kept])) == 3
    await _watchdog(scene).run_once()
    found = "select state, outcome from surefoot.segments where run_id = %s"
    assert [(await scene.rows(found, run_id))[0] for run_id in (cancelled, held, gone_on, kept)] == [
        ("settled", "cancelled"), ("settled", "held"), ("settled", "lost"), ("waiting", None)
    ]  # fmt: skip


_BREAKS = """
create function audit.breaks() returns trigger language plpgsql as $$
begin
    if old.run_id = tg_argv[0] then raise exception 'this run cannot be touched'; end if;
    return new;
end $$;
create trigger breaks before update on surefoot.runs for each row execute function audit.breaks('{run_id}')"""


@pytest.mark.parametrize("broken", ["gone from the engine", "running"])
async def test_one_row_that_cannot_be_touched_keeps_nothing_else_from_going_on(
    scene: Scene, engine: Engine, database_url: str, broken: str
) -> None:
    """Somebody sits, too, on the row of one worker that is dead, and on that of one whose process is gone."""
    ruins = await _ruin(scene)
    async with scene.database.all_tenants("register") as session:
        await register(session, WorkerId("a gone one"), pid=NO_SUCH_PID)
    await scene.rows("update surefoot.workers set machine = %s where worker_id = 'a gone one'", machine.machine_id())
    await scene.admin.execute(_BREAKS.format(run_id=ruins.runs[broken]).encode())
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        await holder.execute("select 1 from surefoot.workers where worker_id in ('old', 'a gone one') for update")
        with pytest.raises(DBAPIError, match="cannot be touched"):
            await _watchdog(scene).run_once()
        found = await _now(scene, ruins)
    dead = {name for name, state in found["workers"].items() if state == "dead"}
    assert dead == {"dead", "gone"}
    for name in {"gone from the engine", "ended in the engine"} - {broken}:
        assert found[name]["segments"] == [(0, "settled", "lost"), (1, "open", None)]
    for name in {"overdue, waiting", "overdue, running"} - {broken}:
        assert found[name]["approvals"] == ["expired"]
    assert f"{ruins.runs['running elsewhere']}:0" in engine.handed_over
    # What could not be fenced is not handed over.
    assert (f"{ruins.runs['running']}:0" in engine.handed_over) == (broken != "running")


async def test_one_that_has_its_own_row_locked_is_cut_off_and_then_buried(
    scene: Scene, engine: Engine, database_url: str
) -> None:
    """It was cut off while it began a segment, say, which holds the row of its lease until that is committed."""
    ruins = await _ruin(scene)
    name = application_name(DEAD)
    async with await psycopg.AsyncConnection.connect(database_url, application_name=name) as holder:
        await holder.execute("select 1 from surefoot.workers where worker_id = %s for share", (DEAD,))
        for _ in range(2):
            await _watchdog(scene).run_once()
        assert (await _now(scene, ruins))["workers"][DEAD] == "dead"
        with pytest.raises(psycopg.errors.AdminShutdown):
            await holder.execute("select 1")
    assert f"{ruins.runs['running']}:0" in engine.handed_over


class Killed(BaseException):
    """The process ends here."""


class MortalDatabase(SteppedDatabase):
    """Dies after so many commits."""

    def __init__(self, scene: Scene, commits: int) -> None:
        super().__init__(scene.database.url)
        self.left = commits

    def all_tenants(self, name: str) -> AbstractAsyncContextManager[Session]:
        self._die()
        return super().all_tenants(name)

    def transaction(self, name: str, tenant: Any) -> AbstractAsyncContextManager[Session]:
        self._die()
        return super().transaction(name, tenant)

    def _die(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


async def test_killed_between_any_two_of_its_transactions_another_one_finishes(
    scene: Scene, engine: Engine, pace: Pace
) -> None:
    """A kill inside a transaction is one before it: nothing of it is there."""
    undisturbed: dict[str, Any] | None = None
    commits = -1
    while True:
        await scene.rows("truncate surefoot.runs, surefoot.workers, dbos.workflow_status, audit.moves cascade")
        async with scene.database.all_tenants("register") as session:
            for worker_id in (ADA, BOB, EVE):
                await register(session, worker_id)
        ruins = await _ruin(scene)
        mortal = MortalDatabase(scene, commits)
        engine.database = mortal
        killed = False
        try:
            if commits >= 0:
                await _watchdog(scene, ADA, mortal).run_once()
        except Killed:
            killed = True
        finally:
            await mortal.close()
        engine.database = scene.database
        for _ in range(2):
            await _watchdog(scene, BOB).run_once()
        found = await _now(scene, ruins)
        if undisturbed is None:
            undisturbed = found
        assert found == undisturbed, f"killed after {commits} transactions"
        if commits >= 0 and not killed:
            break
        commits += 1
    assert commits > 10
    pace.note("kills", commits)


async def test_two_at_once_and_a_zombie_and_who_takes_over(scene: Scene, engine: Engine, pace: Pace) -> None:
    """Whatever the order: consistent, restarted once, and who took over from the dead is not fenced by the watchdog."""
    for seed in range(SEED, SEED + INTERLEAVINGS):
        await _play(scene, engine, pace, seed)


async def _play(scene: Scene, engine: Engine, pace: Pace, seed: int) -> None:
    stage = scene.stage(seed)
    dead = WorkerId(f"dead {seed}")
    async with scene.database.all_tenants("register") as session:
        await register(session, dead)
    running = await scene.running(worker_id=dead)
    lost = (await scene.running()).run_id
    late = await scene.about_to_wait(["approval"])
    await scene.overdue(late.action(0))
    await scene.rows("update dbos.workflow_status set status = 'ERROR' where workflow_uuid = %s", f"{lost}:0")
    await scene.rows("update surefoot.segments set created_at = created_at - interval '1 minute' where state = 'open'")
    await scene.rows("update surefoot.workers set lease_until = now() - interval '1 s' where worker_id = %s", dead)
    stage.actor("one", _watchdog(scene, ADA).run_once)
    stage.actor("two", _watchdog(scene, BOB).run_once)
    ending = Ending(state=RunState.WAITING, turns=1, usage={}, waits=[await _asks(scene, running)])
    others: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("the zombie ends", partial(scene.end, running, ending)),
        ("eve takes over", partial(_takes_over, scene, running)),
        ("the segment ends", partial(scene.end, late.execution, late.ending())),
        ("somebody decides", partial(scene.decide, late.action(0), "approve")),
        ("somebody cancels", partial(scene.cancel, lost)),
    ]
    for name, act in stage.random.sample(others, k=stage.random.randint(1, 3)):
        stage.actor(name, act)
    try:
        with pace.one(stage):
            await stage.play()
        for actor in stage.actors:
            if isinstance(actor.error, Conflict | Fenced):
                pace.note(type(actor.error).__name__)
            else:
                actor.outcome()
        await _watchdog(scene, ADA).run_once()
        for run_id in (running.run_id, lost, late.run_id):
            invariants.consistent(await scene.seen(run_id))
        for actor in stage.actors:
            if actor.name == "eve takes over" and actor.result is not None:
                seen = await scene.seen(running.run_id)
                assert seen["generation"] == actor.result, "the watchdog fenced a live worker"
        after = await scene.seen(lost)
        came_to = (after["state"], [segment["outcome"] for segment in after["segments"]])
        assert came_to in (
            ("queued", ["lost", None]),
            ("cancelled", ["lost", "cancelled"]),
            ("cancelled", ["lost"]),  # it was being cancelled, and its segment is given up by whoever finds it
        )
        assert (await scene.seen(late.run_id))["approvals"][0]["state"] == "expired"
    except Exception:
        print(f"seed {seed}")
        print("\n".join(stage.trace))
        for run_id in (running.run_id, lost, late.run_id):
            print(invariants.shown(await scene.seen(run_id)))
        raise
    finally:
        await scene.admin.execute(_OVER.encode())


async def _asks(scene: Scene, execution: Execution) -> Any:
    async with scene.database.transaction("calls", execution.tenant) as session:
        return await scene.call(session, execution, 0, "approval")


async def _takes_over(scene: Scene, execution: Execution) -> int | None:
    """A live worker, as soon as the engine has the segment in its queue again. Its generation."""
    for _ in range(4):
        await scene.dequeue(execution.run_id, 0, EVE)
        begun = await scene.begin(execution.run_id, 0, EVE)
        if begun is not None:
            return begun.execution.generation
    return None


async def test_a_segment_that_somebody_took_up_after_the_look_is_not_moved(scene: Scene, engine: Engine) -> None:
    """A worker of the old version came back between the watchdog's look and its move."""
    waiting: Waiting = await scene.about_to_wait(["approval"])
    workflow = f"{waiting.run_id}:0"
    await scene.rows(
        "update dbos.workflow_status set executor_id = 'nobody', application_version = %s where workflow_uuid = %s",
        OLD_VERSION,
        workflow,
    )
    await scene.rows("update surefoot.segments set created_at = created_at - interval '1 minute'")
    database = _Between(scene.database.url)
    dog = _watchdog(scene, ADA, database)

    async def comes_back() -> None:
        async with scene.database.all_tenants("register") as session:
            await register(session, OLD, version=OLD_VERSION)
        await scene.rows("update dbos.workflow_status set executor_id = %s where workflow_uuid = %s", OLD, workflow)
        begun = await scene.begin(waiting.run_id, 0, OLD)
        assert begun is not None

    database.before_move = comes_back
    await dog.run_once()
    await database.close()
    seen = await scene.seen(waiting.run_id)
    assert [(s["n"], s["state"]) for s in seen["segments"]] == [(0, "open")], "a live worker lost its segment"
    assert seen["state"] == "running"
    [[version]] = await scene.rows(
        "select application_version from dbos.workflow_status where workflow_uuid = %s", workflow
    )
    assert version == OLD_VERSION


class _Between(SteppedDatabase):
    before_move: Callable[[], Awaitable[None]] | None = None

    def all_tenants(self, name: str) -> AbstractAsyncContextManager[Session]:
        return self._after(name, super().all_tenants(name))

    @asynccontextmanager
    async def _after(self, name: str, opened: AbstractAsyncContextManager[Session]) -> AsyncGenerator[Session]:
        if name == "watchdog.move" and self.before_move is not None:
            await self.before_move()
        async with opened as session:
            yield session


async def test_a_worker_without_a_live_lease_begins_nothing(scene: Scene) -> None:
    """Its claim in the engine is still its own, and the database's clock says that it is dead."""
    async with scene.database.all_tenants("register") as session:
        await register(session, DEAD)
    run_id = await scene.start()
    await scene.dequeue(run_id, 0, DEAD)
    await scene.rows("update surefoot.workers set lease_until = now() - interval '1 s' where worker_id = %s", DEAD)
    with pytest.raises(Fenced):
        await scene.begin(run_id, 0, DEAD)
    assert (await scene.seen(run_id))["state"] == "queued"
