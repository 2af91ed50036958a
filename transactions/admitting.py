"""Admission: which of the segments that wait the engine gets next, within limits and room, fairly over tenants.

One dispatcher at a time, by an advisory lock that lasts for its transaction; whoever dies in it has admitted nothing.
What is limited is admitted here alone, and counted under that lock, so a limit on what runs holds over all workers.
"""

import heapq
import json
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.ids import RunId, Tenant
from transactions.statements import load

_QUEUE = load("queue")
# So many are seen of a lane at one look; where all of them are admitted, it ends, and the next one follows at once.
_PER_LANE = 20
_RIPENED_MAX = 1000
# For so long is taken for true what was told last, while nothing waits and nothing has begun since.
_IDLE_S = 1.0
_NEVER = datetime.min.replace(tzinfo=UTC)

# A tenant and an agent; None: all of them.
Scope = tuple[str | None, str | None]
# Of a tenant and agent those that begin, or those that go on: each of them fits where another one does.
Lane = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Head:
    """A segment that waits, among the first of its tenant and agent. `first`: its run has not begun yet.

    served_at: when its tenant was served last. version: of those that have workers, whose it is, if they are several.
    """

    run_id: RunId
    n: int
    tenant: Tenant
    agent: str
    first: bool
    served_at: datetime = _NEVER
    version: str | None = None

    @property
    def scopes(self) -> Sequence[Scope]:
        """Those whose limits hold for it."""
        return ((self.tenant, self.agent), (self.tenant, None), (None, self.agent), (None, None))

    @property
    def lane(self) -> Lane:
        return self.tenant, self.agent, self.first


@dataclass(slots=True)
class Left:
    """How much may still be admitted; what is not named is without bound.

    room: slots of the live workers, of one agent or (None) in all; room_of: those of one version, if there are several.
    running, starts: what the limits of a scope leave.
    """

    room: dict[str | None, int] = field(default_factory=dict[str | None, int])
    room_of: dict[str, int] = field(default_factory=dict[str, int])
    running: dict[Scope, int] = field(default_factory=dict[Scope, int])
    starts: dict[Scope, int] = field(default_factory=dict[Scope, int])

    def take(self, head: Head) -> bool:
        """Whether it fits; then it is counted."""
        counted = [*self._room(head), *self._limits(head)]
        if any(left.get(of, 1) <= 0 for left, of in counted):
            return False
        for left, of in counted:
            if of in left:
                left[of] -= 1
        return True

    def lacks_room(self, head: Head) -> bool:
        """Whether it does not fit, and it is no limit that is in its way."""
        within = all(left.get(of, 1) > 0 for left, of in self._limits(head))
        return within and any(left.get(of, 1) <= 0 for left, of in self._room(head))

    def _room(self, head: Head) -> Sequence[tuple[dict[Any, int], Any]]:
        return (self.room, None), (self.room, head.agent), (self.room_of, head.version)

    def _limits(self, head: Head) -> Sequence[tuple[dict[Any, int], Any]]:
        running = [(self.running, scope) for scope in head.scopes]
        return [*running, *((self.starts, scope) for scope in head.scopes if head.first)]

    def counts_start(self, head: Head) -> bool:
        """Whether a limit on starts holds for it."""
        return head.first and any(scope in self.starts for scope in head.scopes)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look of a dispatcher came to. `backlog`: something waits, for room or for a limit. `again`: there may be
    more to admit right now."""

    backlog: bool
    admitted: Sequence[RunId] = ()
    again: bool = False


def choose(heads: Sequence[Head], running: Mapping[str, int], left: Left, *, per_lane: int) -> tuple[list[Head], bool]:
    """Those of the heads that are admitted, in their order; `left` is what is left after them. And whether it ended
    because of a lane, of which `per_lane` were seen, all are admitted: what follows may be more of it.

    heads: of each tenant in its order: by priority, those that go on before those that begin, then the oldest.
    running: how many run of each tenant. Each time it is the turn of the tenant of which the fewest run, and of those
    with as few, of the one that was not served for longest; of its heads it is that of the first that fits.
    """
    waiting: dict[str, deque[Head]] = defaultdict(deque)
    for head in heads:
        waiting[head.tenant].append(head)
    turns = [(running.get(tenant, 0), 0, mine[0].served_at, tenant) for tenant, mine in waiting.items()]
    heapq.heapify(turns)
    chosen: list[Head] = []
    taken = Counter[Lane]()
    while turns:
        runs, _, served_at, tenant = heapq.heappop(turns)
        mine = waiting[tenant]
        while mine:
            head = mine.popleft()  # one that does not fit now will not later: what is left only becomes less
            if left.take(head):
                chosen.append(head)
                taken[head.lane] += 1
                if taken[head.lane] == per_lane:
                    return chosen, True
                heapq.heappush(turns, (runs + 1, len(chosen), served_at, tenant))
                break
    return chosen, False


async def look(session: AsyncSession, *, fresh_s: float) -> Look:
    """Admit what may be admitted now, and tell everybody how much room is left. A transaction of its own.

    fresh_s: when another dispatcher has told so within as many seconds, that is taken for true; 0: it may not be.
    """
    locked = await fetch_one(session, _QUEUE["lock_and_ripen"], limit=_RIPENED_MAX, fresh_s=fresh_s, idle_s=_IDLE_S)
    assert locked is not None
    if not locked["mine"] or (locked["fresh"] and not locked["ripened"]):
        return Look(backlog=bool(locked["backlog"]))
    # In a statement of its own, so that it sees what the dispatcher before has committed.
    found = await _found(session)
    limits = await fetch_all(session, _QUEUE["limits_in_force"])
    heads = [_head(row) for row in found["heads"]]
    left = _left(found, limits)
    of_tenants = Counter[str]()
    for row in found["running"]:
        of_tenants[row["tenant"]] += row["running"]
    chosen, again = choose(heads, of_tenants, left, per_lane=_PER_LANE)
    admitted = await _admit(session, chosen, left) if chosen else ()
    of_tenants.update(head.tenant for head in chosen)
    taken = {head.run_id for head in chosen}
    await _ask_to_hand_on(session, found, [head for head in heads if head.run_id not in taken], of_tenants, left)
    again, backlog = again and bool(admitted), again or len(admitted) < len(heads)
    told = _told(limits, left, found["newest"], again=again) | {"backlog": backlog, "handed": locked["handed"]}
    if backlog or found["stale"] or any(found[name] != value for name, value in told.items()):
        await execute(session, _QUEUE["tell"], **{**told, "rooms": json.dumps(told["rooms"])})
    return Look(backlog=backlog, admitted=admitted, again=again)


async def _found(session: AsyncSession) -> Mapping[str, Any]:
    """What waits and what runs; what nobody is there for takes no slot of a limit any more."""
    found = await fetch_one(session, _QUEUE["look"], per_lane=_PER_LANE, idle_s=_IDLE_S)
    assert found is not None, "the migration has put the row"
    if not found["live"]:
        return found
    agents = sorted({row["agent"] for row in found["running"] if not _rooms(found, row["agent"])})
    if not agents or not await fetch_all(session, _QUEUE["take_back_if_nobody_serves"], agents=agents):
        return found
    found = await fetch_one(session, _QUEUE["look"], per_lane=_PER_LANE, idle_s=_IDLE_S)
    assert found is not None
    return found


def _head(row: Mapping[str, Any]) -> Head:
    served_at = _NEVER if row["served_at"] is None else datetime.fromisoformat(row["served_at"])
    run_id, tenant = RunId(row["run_id"]), Tenant(row["tenant"])
    return Head(run_id, row["n"], tenant, row["agent"], row["first"], served_at, row["version"])


def _left(found: Mapping[str, Any], limits: Sequence[Mapping[str, Any]]) -> Left:
    """By the slots of live workers, the limits, and what runs."""
    left = Left()
    running = [(row["tenant"], row["agent"], row["running"]) for row in found["running"]]
    for agent in (None, *found["agents"]):
        rooms = _rooms(found, agent)
        if None not in rooms.values():
            left.room[agent] = max(0, sum(n for n in rooms.values() if n) - _running(found, agent, None))
        if agent is None and len(rooms) > 1:
            left.room_of = {version: n for version, n in rooms.items() if n is not None}
    for limit in limits:
        scope = _scope(limit)
        if limit["running_max"] is not None:
            now = sum(n for tenant, agent, n in running if scope[0] in (None, tenant) and scope[1] in (None, agent))
            left.running[scope] = limit["running_max"] - now
        if limit["starts_max"] is not None:
            left.starts[scope] = limit["starts_max"] - limit["started"]
    return left


def _rooms(found: Mapping[str, Any], agent: str | None) -> dict[str, int | None]:
    """Free slots of each version that has workers, of one agent or (None) in all; None: it has no bound.

    What an older version's own runs wait for is its slots alone: they take no room of the newer one's.
    """
    rooms: dict[str, int | None] = {}
    for w in found["live"]:
        if agent is None or w["agents"] is None or agent in w["agents"]:
            so_far = rooms.get(w["version"], 0)
            rooms[w["version"]] = None if so_far is None or w["unbounded"] else so_far + w["slots"]
    return {
        version: None if slots is None else max(0, slots - _running(found, agent, version))
        for version, slots in rooms.items()
    }


def _running(found: Mapping[str, Any], agent: str | None, version: str | None) -> int:
    """version None: those of no version that the engine knows."""
    of = [row for row in found["running"] if agent in (None, row["agent"]) and row["version"] == version]
    return sum(row["running"] for row in of)


def _scope(limit: Mapping[str, Any]) -> Scope:
    return None if limit["everyone"] else limit["tenant"], limit["agent"] or None


async def _admit(session: AsyncSession, chosen: Sequence[Head], left: Left) -> Sequence[RunId]:
    """Those that still wait and that nobody has locked; another look comes to the rest."""
    rows = await fetch_all(
        session,
        _QUEUE["admit_if_waiting"],
        run_ids=[head.run_id for head in chosen],
        ns=[head.n for head in chosen],
        rated=[left.counts_start(head) for head in chosen],
    )
    segments = {RunId(row["run_id"]): row["n"] for row in rows}
    await execute(session, _QUEUE["hand_to_engine"], run_ids=list(segments), ns=list(segments.values()))
    served = [head.tenant for head in reversed(chosen) if head.run_id in segments]
    await execute(session, _QUEUE["served"], tenants=list(dict.fromkeys(served))[::-1])
    return list(segments)


async def _ask_to_hand_on(
    session: AsyncSession, found: Mapping[str, Any], waiting: Sequence[Head], running: Mapping[str, int], left: Left
) -> None:
    """Have one run of the tenant of which the most run go on behind others from its next boundary on, where there is no
    room for a tenant of which fewer run, even then."""
    lacking = [head for head in waiting if left.lacks_room(head)]
    if not lacking:
        return
    poorest = min(lacking, key=lambda head: running.get(head.tenant, 0))
    versions = {
        w["version"]
        for w in found["live"]
        if poorest.version in (None, w["version"]) and (w["agents"] is None or poorest.agent in w["agents"])
    }
    there = {row["tenant"] for row in found["running"] if row["version"] in versions}
    richest = max(there, key=lambda tenant: running[tenant], default=None)
    if richest is None:
        return
    poorer = {head.tenant for head in lacking if running.get(head.tenant, 0) + 1 < running[richest]}
    if poorer:
        asked = {"tenant": richest, "versions": sorted(versions), "asked_max": len(poorer)}
        await execute(session, _QUEUE["ask_one_to_hand_on"], **asked)


def _told(limits: Sequence[Mapping[str, Any]], left: Left, newest: Mapping[str, str], *, again: bool) -> dict[str, Any]:
    """What those who start runs go by until the next look: see `surefoot.dispatch`.

    newest: of each agent the version that has the runs that begin, and with them no room of the others.
    """
    room = 0 if again else left.room.get(None)
    rooms = {agent: n for agent, n in left.room.items() if agent is not None}
    for agent, version in newest.items():
        if version in left.room_of:
            rooms[agent] = min(rooms.get(agent, left.room_of[version]), left.room_of[version])
    everyones = [limit for limit in limits if limit["everyone"]]
    return {
        "room": room,
        "rooms": {agent: n for agent, n in rooms.items() if n < left.room.get(None, n + 1)},
        "reached": sorted(
            limit["agent"]
            for limit in everyones
            if left.running.get(_scope(limit), 1) <= 0 or left.starts.get(_scope(limit), 1) <= 0
        ),
    }


async def status(session: AsyncSession, tenant: Tenant) -> Sequence[Mapping[str, Any]]:
    """The rows of `surefoot.queue_status` of a tenant, by agent."""
    return await fetch_all(session, _QUEUE["status"], tenant=tenant)
