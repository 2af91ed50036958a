"""The verdict on one run, from what the world's own files and the database say. Nothing here belongs to the engine.

It imports nothing of the product: a function that answers SQL is handed in, and what was counted in the world.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Rows = Sequence[Mapping[str, Any]]
Query = Callable[..., Awaitable[Rows]]
Kind = Literal["double", "lost", "stuck", "differs", "gap", "repeated"]

_RUN = "select state, output, event_seq, reason from surefoot.runs where run_id = :run_id"
_ACTIONS = """
select a.action_id, a.turn, a.position, a.tool, a.state, a.gated,
       (select count(*) from surefoot.receipts r where r.action_id = a.action_id) as receipts,
       (select count(r.contradiction) from surefoot.receipts r where r.action_id = a.action_id) as contradictions,
       (select count(*) from surefoot.approvals p where p.action_id = a.action_id and p.state = 'approved') as approved
  from surefoot.actions a where a.run_id = :run_id order by a.turn, a.position, a.action_id"""
_ARTIFACTS = "select name, version, sha256 from surefoot.artifacts where run_id = :run_id order by name, version"
_EVENTS = "select seq from surefoot.events where run_id = :run_id order by seq"
_STEPS = "select segment, position, generation from surefoot.steps where run_id = :run_id and how = 'ran'"
_CALLS = "select turn from surefoot.model_calls where run_id = :run_id order by turn"
_DELIVERIES = """
select d.entry_id, d.consumer, d.state, d.attempt, i.entry_id is not null as in_inbox
  from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
  left join surefoot.inbox i on i.entry_id = d.entry_id and i.consumer = d.consumer
 where e.run_id = :run_id"""
_LEFT = """
select 'delivery ' || d.entry_id || ' is ' || d.state as what from surefoot.outbox_deliveries d
  join surefoot.outbox_entries e using (entry_id)
 where e.run_id = :run_id and d.state in ('parked', 'pending', 'claimed', 'dead')
union all select 'action ' || action_id || ' is ' || state from surefoot.actions
 where run_id = :run_id and state in ('PREPARED', 'IN_FLIGHT', 'UNKNOWN')
union all select 'segment ' || n || ' is open' from surefoot.segments where run_id = :run_id and state = 'open'
union all select 'approval ' || approval_id || ' is pending' from surefoot.approvals
 where run_id = :run_id and state = 'pending'
union all select wait_id || ' is waited for' from surefoot.waits where run_id = :run_id and state = 'open'
union all select 'workflow ' || workflow_uuid || ' is ' || status from dbos.workflow_status
 where starts_with(workflow_uuid, :run_id || ':') and status in ('PENDING', 'ENQUEUED', 'DELAYED')"""
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


async def judge(query: Query, run_id: str, picture: Picture, undisturbed: Picture, *, ended: bool) -> list[Finding]:
    """Everything that is wrong with a run. `ended`: it came to an end and was quiet before patience was over."""
    found = [*_compared("the world has", picture.world, undisturbed.world)]
    found += _compared("the database has", picture.rows, undisturbed.rows)
    run = (await query(_RUN, run_id=run_id))[0]
    if not ended:
        found.append(Finding("stuck", f"the run is {run['state']} and nothing goes on ({run['reason']})"))
    found += [Finding("stuck", row["what"]) for row in await query(_LEFT, run_id=run_id)]
    if ended:
        found += _differences(picture, undisturbed, why=run["reason"])
        found += _disagreements(await query(_ACTIONS, run_id=run_id), await query(_DELIVERIES, run_id=run_id))
    numbers = [row["seq"] for row in await query(_EVENTS, run_id=run_id)]
    if numbers != list(range(1, run["event_seq"] + 1)):
        found.append(Finding("gap", f"events are numbered {numbers} and the run counts {run['event_seq']}"))
    width = int((await query(_WIDTH, run_id=run_id))[0]["width"])
    found += repeated_steps(await query(_STEPS, run_id=run_id), width=width)
    return found


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
    """Steps that ran again though an earlier execution was already beyond them: `width` may be in flight at once."""
    last: dict[tuple[int, int], int] = {}
    executions: dict[tuple[int, int], list[int]] = {}
    for row in ran:
        execution = (row["segment"], row["generation"])
        last[execution] = max(last.get(execution, 0), row["position"])
        executions.setdefault((row["segment"], row["position"]), []).append(row["generation"])
    for (segment, position), generations in executions.items():
        for generation in sorted(generations)[:-1]:
            if position <= last[segment, generation] - width:
                beyond = last[segment, generation]
                what = f"step {segment}/{position} ran again after generation {generation} had done step {beyond}"
                yield Finding("repeated", what)
