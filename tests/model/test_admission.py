"""Which segments are admitted, against a model that asks again, for each one, which of all that wait comes next."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.model.machines import LONGER, changed
from transactions import Database, admitting
from transactions.admitting import Left, Scope

TENANTS, AGENTS = ("a", "b", "c"), ("x", "y")
SCOPES: list[Scope] = [(t, g) for t in (*TENANTS[:2], None) for g in (*AGENTS, None)]
PERIOD_S = 3600.0
PER_LANE = 3  # of so few that they are often cut off


@dataclass(frozen=True)
class Segment:
    """One that is there before the look. `since`: minutes ago; for one that is delayed, until it is due."""

    tenant: str
    agent: str
    state: str = "waiting"
    n: int = 0
    priority: int = 0
    since: int = 0
    rated: bool = False
    over: bool = False  # its run is, whatever the segment says


@dataclass
class World:
    segments: list[Segment]
    workers: list[tuple[int | None, list[str] | None]]
    limits: dict[Scope, tuple[int | None, int | None]]
    served: list[str] = field(default_factory=list[str])  # the one served last comes last


segment = st.builds(
    Segment,
    st.sampled_from(TENANTS),
    st.sampled_from(AGENTS),
    st.sampled_from(["waiting"] * 5 + ["open", "open", "settled", "settled", "delayed"]),
    st.sampled_from((0, 0, 1)),
    st.sampled_from((0, 0, 1, -1)),
    st.integers(-50, 50),
    st.sampled_from((True, True, False)),
    st.sampled_from([False] * 9 + [True]),
)
worker = st.tuples(
    st.sampled_from((8, 8, 8, 3, 2, 1, 0, None)), st.sampled_from((None, None, list(AGENTS), ["x"], ["y"], ["z"]))
)
limit = st.tuples(st.sampled_from((None, None, 0, 1, 2, 3, 4)), st.sampled_from((None, 1, 2, 3)))


def worlds(*, segments_min: int = 0, workers_min: int = 0, limits_min: int = 0) -> st.SearchStrategy[World]:
    return st.builds(
        World,
        st.lists(segment, min_size=segments_min, max_size=24),
        st.lists(worker, min_size=workers_min, max_size=3),
        st.dictionaries(st.sampled_from(SCOPES), limit, min_size=limits_min, max_size=4),
        st.permutations(TENANTS).flatmap(lambda order: st.integers(0, 3).map(lambda k: list(order[:k]))),
    )


# In which much waits, and something is limited.
BUSY = worlds(segments_min=12, workers_min=1, limits_min=1)


# The model.


def counts(scope: Scope, one: Segment) -> bool:
    return scope[0] in (None, one.tenant) and scope[1] in (None, one.agent)


def expected(world: World) -> tuple[list[int], dict[str, Any]]:
    """What is admitted, by position, in order; and what is told afterwards."""
    running = [s for s in world.segments if s.state == "open"]
    began = [s for s in world.segments if s.rated and s.n == 0 and s.state in ("open", "settled") and s.since >= 0]
    due = [s.state == "waiting" or (s.state == "delayed" and s.since >= 0) for s in world.segments]
    waiting = [i for i, s in enumerate(world.segments) if due[i] and not s.over]
    served = {tenant: -len(world.served) + k for k, tenant in enumerate(world.served)}
    admitted: list[int] = []

    def slots(agent: str | None) -> float:
        serving = [n for n, agents in world.workers if agent is None or agents is None or agent in agents]
        used = sum(agent in (None, s.agent) for s in running)
        return float("inf") if None in serving else sum(n or 0 for n in serving) - used

    def reached(scope: Scope, *, first: bool) -> bool:
        running_max, starts_max = world.limits[scope]
        too_many = running_max is not None and sum(counts(scope, s) for s in running) >= running_max
        too_soon = starts_max is not None and sum(counts(scope, s) for s in began) >= starts_max
        return too_many or (first and too_soon)

    def fits(i: int) -> bool:
        one = world.segments[i]
        held = [scope for scope in world.limits if counts(scope, one) and reached(scope, first=one.n == 0)]
        return slots(None) > 0 and slots(one.agent) > 0 and not held

    while fitting := [i for i in waiting if i not in admitted and fits(i)]:
        of_tenant = Counter(s.tenant for s in running)
        mine = min({world.segments[i].tenant for i in fitting}, key=lambda t: (of_tenant[t], served.get(t, -9), t))
        here = [i for i in fitting if world.segments[i].tenant == mine]
        best = min(here, key=lambda i: (-world.segments[i].priority, world.segments[i].n == 0, -age(world, i), i))
        admitted.append(best)
        running.append(world.segments[best])
        if world.segments[best].n == 0 and any(
            starts is not None and counts(scope, world.segments[best]) for scope, (_, starts) in world.limits.items()
        ):
            began.append(world.segments[best])
        served[mine] = len(admitted)
    left = slots(None)
    told = {
        "room": None if left == float("inf") else max(0, int(left)),
        "backlog": len(admitted) < len(waiting),
        "reached": sorted(scope[1] or "" for scope in world.limits if scope[0] is None and reached(scope, first=True)),
    }
    return admitted, told


def age(world: World, i: int) -> int:
    return abs(world.segments[i].since) if world.segments[i].state == "waiting" else world.segments[i].since


# The database.


def put(connection: psycopg.Connection[Any], world: World) -> None:
    """As the owner, past every trigger."""
    now = datetime.now(UTC)
    for table in ("segments", "runs", "limits", "workers", "queue_turns", "agents"):
        connection.execute(f"delete from surefoot.{table}".encode())
    connection.execute("delete from dbos.workflow_status")
    connection.execute("update surefoot.dispatch set room = null, reached = '{}', backlog = false")
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into surefoot.agents (name, version, input_schema) values (%s, '1', '{}')", [[a] for a in AGENTS]
        )
        cursor.executemany(
            "insert into surefoot.workers (worker_id, version, host, machine, pid, pid_start, lease_s, lease_until,"
            " ready_at, slots, agents)"
            " values (%s, '1', 'h', 'm', 1, '0', 60, now() + interval '1 hour', now(), %s, %s)",
            [[f"w{i}", slots, agents] for i, (slots, agents) in enumerate(world.workers)],
        )
        cursor.executemany(
            "insert into surefoot.limits (tenant, everyone, agent, running_max, starts_max, period_s, changed_by)"
            " values (%s, %s, %s, %s, %s, %s, 'test')",
            [
                [tenant or "default", tenant is None, agent or "", running, starts, starts and PERIOD_S]
                for (tenant, agent), (running, starts) in world.limits.items()
            ],
        )
        cursor.executemany(
            "insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash, state, segment)"
            " values (%s, %s, %s, 'p', '1', 'h', %s, %s)",
            [
                [run_id(i), s.tenant, s.agent, "cancelling" if s.over else "queued", s.n]
                for i, s in enumerate(world.segments)
            ],
        )
        cursor.executemany(
            "insert into surefoot.segments (run_id, n, tenant, agent, priority, state, queued_at, rated, admitted_at,"
            " begins, settled_at, outcome, turns)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [row(world, i, now) for i in range(len(world.segments))],
        )
        cursor.executemany(
            "insert into surefoot.queue_turns values (%s, %s)",
            [[tenant, now - timedelta(hours=9 - k)] for k, tenant in enumerate(world.served)],
        )


def row(world: World, i: int, now: datetime) -> list[Any]:
    s = world.segments[i]
    admitted = s.state in ("open", "settled")
    # What began before the period is negative in the model.
    admitted_at = now - timedelta(seconds=0 if s.since >= 0 else 2 * PERIOD_S) if admitted else None
    queued_at = now - timedelta(minutes=age(world, i))
    over = [now, "completed", 1] if s.state == "settled" else [None, None, None]
    admission = [s.rated and admitted, admitted_at, s.n == 0]
    return [run_id(i), s.n, s.tenant, s.agent, s.priority, s.state, queued_at, *admission, *over]


def run_id(i: int) -> str:
    return f"r{i:02}"


class Played:
    """One database, and the looks of a dispatcher on it."""

    def __init__(self, url: str, loop: asyncio.Runner) -> None:
        self.loop = loop
        self.database = Database(url)
        self.owner = psycopg.connect(url, autocommit=True, options="-c session_replication_role=replica")
        self.owner.execute("insert into surefoot.tenants (tenant) values ('a'), ('b'), ('c')")

    def check(self, world: World) -> None:
        with self.owner.transaction():
            put(self.owner, world)
        admitted, told = expected(world)
        found = self.loop.run(self.look())
        assert sorted(found) == sorted(run_id(i) for i in admitted)
        engine = self.owner.execute("select workflow_uuid from dbos.workflow_status order by 1").fetchall()
        assert [one for (one,) in engine] == sorted(f"{run_id(i)}:{world.segments[i].n}" for i in admitted)
        [now] = self.owner.execute("select room, backlog, reached from surefoot.dispatch").fetchall()
        assert dict(zip(("room", "backlog", "reached"), now, strict=True)) == told

    async def look(self) -> list[str]:
        found: list[str] = []
        while True:
            async with self.database.all_tenants("queue.look") as session:
                looked = await admitting.look(session, fresh_s=0)
            found += looked.admitted
            if not looked.again:
                return found


@contextmanager
def played(url: str) -> Iterator[Played]:
    with asyncio.Runner() as loop:
        made = Played(url, loop)
        try:
            yield made
        finally:
            made.owner.close()
            loop.run(made.database.close())


def search(
    url: str, among: st.SearchStrategy[World], *, examples: int, phases: tuple[Phase, ...] = tuple(Phase)
) -> None:
    with played(url) as on:

        @settings(
            max_examples=int(LONGER or examples),
            deadline=None,
            database=None,
            derandomize=LONGER is None,
            phases=phases,
            print_blob=False,
            report_multiple_bugs=False,
        )
        @given(among)
        def look(world: World) -> None:
            on.check(world)

        look()


@pytest.fixture(autouse=True)
def few_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admitting, "_PER_LANE", PER_LANE)


def test_what_is_admitted_is_what_the_model_says(database_url: str) -> None:
    search(database_url, worlds() | BUSY, examples=150)


def statement(name: str, guard: str, instead: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The search with one statement spoilt."""
    return lambda patch: patch.setattr(admitting, "_QUEUE", changed("queue", (name, guard, instead)))


def everyone_in_turn(patch: pytest.MonkeyPatch) -> None:
    """No tenant before another: by priority and age alone."""

    def in_order(heads: Any, running: Any, left: Left, *, per_lane: int) -> Any:
        return [head for head in heads if left.take(head)], False

    patch.setattr(admitting, "choose", in_order)


def nothing_is_cut_off(patch: pytest.MonkeyPatch) -> None:
    choose = admitting.choose
    patch.setattr(admitting, "choose", lambda *args, per_lane: choose(*args, per_lane=10**6))


@pytest.mark.parametrize(
    "without",
    [
        everyone_in_turn,
        nothing_is_cut_off,
        statement("look", "order by h.priority desc, h.first,", "order by h.priority desc,"),
        statement("look", "order by h.priority desc, ", "order by "),
        statement("look", "and r.state = 'queued'", ""),
        statement("look", "where s.state = 'open' group by", "where s.state = 'settled' group by"),
        statement("look", "queue_turns t on t.tenant = l.tenant", "queue_turns t on false"),
        statement("limits_in_force", "s.rated and s.begins and s.tenant", "s.rated and s.tenant"),
        statement("limits_in_force", "and s.admitted_at >", "and s.admitted_at <"),
        statement("limits_in_force", "l.running_max, l.starts_max", "l.running_max + 1 as running_max, l.starts_max"),
        statement("lock_and_ripen", "s.queued_at <= clock_timestamp()", "true"),
    ],
)  # fmt: skip
def test_the_model_misses_each_part(
    database_url: str, monkeypatch: pytest.MonkeyPatch, without: Callable[[pytest.MonkeyPatch], None]
) -> None:
    without(monkeypatch)
    with pytest.raises(AssertionError):
        search(database_url, BUSY, examples=400, phases=(Phase.generate,))
