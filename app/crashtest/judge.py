"""The verdict on one run, from what the world's own files and the database say. Nothing here belongs to the engine.

It imports nothing of the product: a function that answers SQL is handed in, and what was counted in the world.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

Rows = Sequence[Mapping[str, Any]]
Query = Callable[..., Awaitable[Rows]]
Kind = Literal["double", "lost", "stuck", "differs", "gap", "repeated", "stale", "budget"]
Word = Literal["recovered", "on the desk", "residual", "failed"]
# How a case came to rest: it ended, or nothing goes on any more.
End = Literal["ended", "stuck"]
_FROZEN = frozenset({"stop", "freeze", "partition"})
_CERTAIN = frozenset({"slow", "rate-limited"})  # what became of the effect is known: it was answered, or never arrived

_RUN = "select state, output, event_seq, reason from surefoot.runs where run_id = :run_id"
_ACTIONS = """
select a.action_id, a.turn, a.position, a.tool, a.state, a.gated,
       (select count(*) from surefoot.receipts r where r.action_id = a.action_id) as receipts,
       (select count(r.contradiction) from surefoot.receipts r where r.action_id = a.action_id) as contradictions,
       (select count(*) from surefoot.approvals p where p.action_id = a.action_id and p.state = 'approved')
       + (select count(*) from surefoot.events e where e.run_id = a.run_id and e.kind = 'approval.not_needed'
           and e.data ->> 'action' = a.action_id) as approved
  from surefoot.actions a where a.run_id = :run_id order by a.turn, a.position, a.action_id"""
_ARTIFACTS = "select name, version, sha256 from surefoot.artifacts where run_id = :run_id order by name, version"
# Sends that came to light too late, and who had claimed each of them when.
_TOO_LATE = """
select distinct r.action_id, r.attempt, t.worker_id, t.claimed_at
  from surefoot.receipts r join surefoot.actions a using (action_id)
  join surefoot.attempts t on t.action_id = r.action_id and t.attempt = r.attempt
 where a.run_id = :run_id and r.contradiction is not null and r.source = 'answer'"""
_EVENTS = "select seq, generation from surefoot.events where run_id = :run_id order by seq"
_STEPS = """
select segment, position, generation, name like '%model.request' as of_model
  from surefoot.steps where run_id = :run_id and how = 'ran'"""
_CALLS = "select turn from surefoot.model_calls where run_id = :run_id order by turn"
_DELIVERIES = """
select d.entry_id, d.consumer, d.state, d.attempt, i.entry_id is not null as in_inbox
  from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
  left join surefoot.inbox i on i.entry_id = d.entry_id and i.consumer = d.consumer
 where e.run_id = :run_id"""
_LEFT = """
select 'delivery ' || d.entry_id || ' is ' || d.state as what
  from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
  left join surefoot.actions a on a.action_id = d.entry_id
 where e.run_id = :run_id
   and (d.state in ('parked', 'pending', 'claimed') or (d.state = 'dead' and a.state is distinct from 'FAILED'))
union all select 'action ' || action_id || ' is ' || state from surefoot.actions
 where run_id = :run_id and state in ('PREPARED', 'IN_FLIGHT', 'UNKNOWN')
union all select 'segment ' || n || ' is ' || state from surefoot.segments where run_id = :run_id and state <> 'settled'
union all select 'approval ' || approval_id || ' is pending' from surefoot.approvals
 where run_id = :run_id and state = 'pending'
union all select wait_id || ' is waited for' from surefoot.waits where run_id = :run_id and state = 'open'
union all select 'workflow ' || workflow_uuid || ' is ' || status from dbos.workflow_status
 where starts_with(workflow_uuid, :run_id || ':') and status in ('PENDING', 'ENQUEUED', 'DELAYED')"""
# What a person had to say something of, and when it had been claimed.
_DESK = """
select d.action_id, d.attempt, a.tool, e.seq as claimed
  from surefoot.decisions d join surefoot.actions a using (action_id)
  join surefoot.events e on e.run_id = a.run_id and e.kind = 'action.claimed' and e.data ->> 'action' = d.action_id
   and (e.data ->> 'attempt')::integer = d.attempt
 where a.run_id = :run_id"""
_BUDGET = """
select coalesce((r.usage ->> 'requests')::bigint, 0) as requests,
       coalesce((r.usage ->> 'input_tokens')::bigint, 0) as input_tokens,
       coalesce((r.usage ->> 'output_tokens')::bigint, 0) as output_tokens,
       count(c.turn) as calls, coalesce(sum(c.input_tokens), 0) as read, coalesce(sum(c.output_tokens), 0) as written
  from surefoot.runs r left join surefoot.model_calls c using (run_id) where r.run_id = :run_id group by r.run_id"""
_WIDTH = """
select coalesce(max(calls), 1) as width from (
    select count(*) as calls from surefoot.model_messages m, jsonb_array_elements(m.message -> 'parts') as p
     where m.run_id = :run_id and p ->> 'part_kind' = 'tool-call' group by m.seq) as responses"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, in one word and in words."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Picture:
    """What a run came to, with its own id taken out, so that two runs can be compared.

    `world`: times each effect is in the outside world. `rows`: times each business row is there.
    """

    state: str
    output: str
    actions: tuple[str, ...]
    model_calls: tuple[int, ...]
    world: Mapping[str, int]
    rows: Mapping[str, int]


async def look(
    query: Query,
    run_id: str,
    world: Mapping[str, int],
    statements: Sequence[str] = (),
    result: Callable[[Any], object] = lambda output: output,
) -> Picture:
    """The picture of a run as it is now. `result`: what of its output can be compared."""

    def neutral(value: object) -> str:
        return json.dumps(value, default=str, sort_keys=True).replace(run_id, "RUN")

    run = (await query(_RUN, run_id=run_id))[0]
    actions = await query(_ACTIONS, run_id=run_id)
    calls = await query(_CALLS, run_id=run_id)
    rows: Counter[str] = Counter()
    for sql in (_ARTIFACTS, *statements):
        rows.update(neutral([*row.values()]) for row in await query(sql, run_id=run_id))
    return Picture(
        state=run["state"],
        output=neutral(None if run["output"] is None else result(run["output"])),
        actions=tuple(f"{a['turn']}/{a['position']}:{a['tool']} {a['state']}" for a in actions),
        model_calls=tuple(row["turn"] for row in calls),
        world={neutral(effect): times for effect, times in world.items()},
        rows=rows,
    )


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that struck: its kind, the point, and how many events the run had then.

    worker_id, until: whom, and by when it had, by the database's clock; for one from outside, of which nobody knows at
    what point it struck.
    """

    kind: str
    point: str
    event_seq: int
    worker_id: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`failed` has findings. `on the desk` and `residual` are right where nobody can do better, and say what it took.

    on the desk: as if nobody had struck, but it needed a person, because the other side can neither be asked nor told
    twice and a fault fell between claim and receipt. residual: a process that was stopped between its last check and
    its send woke and sent; the duplicate shows, and it had been claimed before the process was stopped.
    """

    word: Word
    findings: Sequence[Finding] = ()


async def judge(
    query: Query,
    run_id: str,
    picture: Picture,
    undisturbed: Picture,
    *,
    end: End,
    strikes: Sequence[Struck] = (),
    at_most_once: frozenset[str] = frozenset(),
) -> Verdict:
    """What a case came to. `at_most_once`: tools whose other side honours no keys and cannot be searched."""
    actions = await query(_ACTIONS, run_id=run_id)
    desk = await query(_DESK, run_id=run_id)
    found = [*_needlessly(desk, strikes, at_most_once)]
    compared = [
        *_compared("the world has", picture.world, undisturbed.world),
        *_compared("the database has", picture.rows, undisturbed.rows),
    ]
    found += [one for one in compared if end != "stuck" or one.kind != "lost"]  # what it stopped before is not lost
    run = (await query(_RUN, run_id=run_id))[0]
    if end == "stuck":
        found.append(Finding("stuck", f"the run is {run['state']} and nothing goes on ({run['reason']})"))
    found += [Finding("stuck", row["what"]) for row in await query(_LEFT, run_id=run_id)]
    if end != "stuck":
        found += _differences(picture, undisturbed, why=run["reason"])
        found += _disagreements(actions, await query(_DELIVERIES, run_id=run_id))
        found += _budget((await query(_BUDGET, run_id=run_id))[0])
    found += _misnumbered(await query(_EVENTS, run_id=run_id), count=run["event_seq"])
    width = int((await query(_WIDTH, run_id=run_id))[0]["width"])
    found += repeated_steps(await query(_STEPS, run_id=run_id), width=width)
    if found:
        twice = {what: n - undisturbed.world.get(what, 0) for what, n in picture.world.items()}
        extra = [n for n in twice.values() if n > 0]
        woke = [one for one in strikes if one.kind in _FROZEN and one.point == "effect.before_send"]
        shown = await _shown(query, run_id, woke, actions)
        return Verdict("residual" if _is_residual(found, shown, extra) else "failed", found)
    return Verdict("on the desk" if desk else "recovered")


def _needlessly(desk: Rows, strikes: Sequence[Struck], at_most_once: frozenset[str]) -> Iterator[Finding]:
    """What a person had to be asked, and should not have been."""
    for row in desk:
        what = f"attempt {row['attempt']} of {row['action_id']} needed a person"
        if row["tool"] not in at_most_once:
            yield Finding("stuck", f"{what}, though its other side can be asked or told twice")
        elif not any(strike.event_seq >= row["claimed"] and strike.kind not in _CERTAIN for strike in strikes):
            yield Finding("stuck", f"{what}, though no fault fell between its claim and a receipt")


async def _shown(query: Query, run_id: str, woke: Sequence[Struck], actions: Rows) -> int:
    """How many duplicates are shown that those who woke may have sent."""
    if not woke:
        return 0
    shown = sum(action["contradictions"] for action in actions)
    if any(strike.worker_id is None for strike in woke):
        return shown
    return sum(
        any(late["worker_id"] == one.worker_id and one.until and late["claimed_at"] <= one.until for one in woke)
        for late in await query(_TOO_LATE, run_id=run_id)
    )


def _is_residual(found: Sequence[Finding], shown: int, extra: Sequence[int]) -> bool:
    """Whether all that is wrong is an effect that a process sent which had been stopped just before, and that shows.

    extra: how much too often each effect is in the world that is there too often.
    """
    kinds = [finding.kind for finding in found]
    return 0 < shown >= sum(extra) and kinds.count("double") == len(extra) and {*kinds} <= {"double", "repeated"}


def _misnumbered(events: Rows, *, count: int) -> Iterator[Finding]:
    """Events that are not 1 to `count`, and of an execution that still wrote after a later one had begun."""
    numbers = [row["seq"] for row in events]
    if numbers != list(range(1, count + 1)):
        yield Finding("gap", f"events are numbered {numbers} and the run counts {count}")
    for before, after in pairwise(events):
        if after["generation"] < before["generation"]:
            what = f"event {after['seq']} is of generation {after['generation']}, after one of {before['generation']}"
            yield Finding("stale", what)


def _budget(row: Mapping[str, Any]) -> Iterator[Finding]:
    counted = (row["requests"], row["input_tokens"], row["output_tokens"])
    recorded = (row["calls"], row["read"], row["written"])
    if counted != recorded:
        yield Finding("budget", f"the run counts {counted} requests and tokens, its model calls are {recorded}")


async def repeats(query: Query, run_id: str) -> int:
    """How many executions of steps were done again."""
    rows = await query(_STEPS, run_id=run_id)
    return len(rows) - len({(row["segment"], row["position"]) for row in rows})


def _compared(where: str, found: Mapping[str, int], expected: Mapping[str, int]) -> Iterator[Finding]:
    for what in sorted({*found, *expected}):
        have, want = found.get(what, 0), expected.get(what, 0)
        if have != want:
            yield Finding("double" if have > want else "lost", f"{where} {what} {have} times, not {want}")


def _differences(picture: Picture, undisturbed: Picture, *, why: str | None) -> Iterator[Finding]:
    for name in ("state", "output", "actions", "model_calls"):
        have, want = getattr(picture, name), getattr(undisturbed, name)
        if have != want:
            yield Finding("differs", f"{name} is {have}, undisturbed {want}" + (f" ({why})" if why else ""))


def _disagreements(actions: Rows, deliveries: Rows) -> Iterator[Finding]:
    for action in actions:
        if action["receipts"] > 1 or action["contradictions"]:
            what = f"{action['action_id']} has {action['receipts']} receipts, {action['contradictions']} contradicting"
            yield Finding("repeated", what)
        if action["state"] == "SUCCEEDED" and action["receipts"] == 0:
            yield Finding("lost", f"{action['action_id']} succeeded without a receipt")
        if action["state"] == "SUCCEEDED" and action["gated"] and not action["approved"]:
            yield Finding("differs", f"{action['action_id']} was done without its approval")
    for row in deliveries:
        if row["state"] == "delivered" and row["consumer"] != "effect" and not row["in_inbox"]:
            yield Finding("differs", f"{row['entry_id']} is delivered and not in the inbox of {row['consumer']}")


def repeated_steps(ran: Rows, *, width: int) -> Iterator[Finding]:
    """Steps that ran again though an earlier execution was already beyond them.

    `width` may be in flight at once, but none that lies before a request to the model: that waits for all of them.
    """
    last: dict[tuple[int, int], int] = {}
    asked: dict[tuple[int, int], int] = {}
    executions: dict[tuple[int, int], list[int]] = {}
    for row in ran:
        execution = (row["segment"], row["generation"])
        last[execution] = max(last.get(execution, 0), row["position"])
        if row["of_model"]:
            asked[execution] = max(asked.get(execution, 0), row["position"])
        executions.setdefault((row["segment"], row["position"]), []).append(row["generation"])
    for (segment, position), generations in executions.items():
        for generation in sorted(generations)[:-1]:
            beyond = last[segment, generation]
            if position <= beyond - width or position < asked.get((segment, generation), 0):
                what = f"step {segment}/{position} ran again after generation {generation} had done step {beyond}"
                yield Finding("repeated", what)
