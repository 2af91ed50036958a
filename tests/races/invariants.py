"""What is true of every run at every moment at which nobody is in the middle of a transaction."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transactions.states import (
    ACTION_TRANSITIONS,
    APPROVAL_TRANSITIONS,
    DELIVERY_TRANSITIONS,
    RUN_TRANSITIONS,
    ActionState,
    DeliveryState,
    Transitions,
)

_TABLES: Mapping[str, Transitions] = {
    "runs": RUN_TRANSITIONS,
    "actions": ACTION_TRANSITIONS,
    "approvals": APPROVAL_TRANSITIONS,
    "outbox_deliveries": DELIVERY_TRANSITIONS,
}


def legal(moves: Sequence[Mapping[str, Any]]) -> None:
    """Every move is in the transition tables. Staying in a state is no move."""
    for move in moves:
        table = _TABLES.get(move["thing"])
        if table is None or move["old"] is None or move["old"] == move["new"]:
            continue
        allowed = {str(new) for new in table[_member(table, move["old"])]}
        assert move["new"] in allowed, f"{move['thing']} {move['key']}: {move['old']} -> {move['new']} is no transition"


def _member(table: Transitions, name: str) -> Any:
    return next(state for state in table if str(state) == name)


def consistent(seen: Mapping[str, Any]) -> None:
    """Numbers without gap or repeat, one open segment at most, an engine row for each, states legal and agreeing."""
    legal(seen["moves"])
    seqs = [event["seq"] for event in seen["events"]]
    assert seqs == list(range(1, seen["event_seq"] + 1)), f"event numbers {seqs}, counter {seen['event_seq']}"
    generations = [event["generation"] for event in seen["events"]]
    assert generations == sorted(generations), f"an execution that was fenced went on: {generations}"
    numbers = [segment["n"] for segment in seen["segments"]]
    assert numbers == list(range(seen["segment"] + 1)), f"segments {numbers}, current {seen['segment']}"
    assert sorted(row["id"] for row in seen["engine"]) == sorted(f"{seen['run_id']}:{n}" for n in numbers)
    opened = [segment["n"] for segment in seen["segments"] if segment["state"] == "open"]
    live = seen["state"] in ("queued", "running", "cancelling")
    assert opened == ([seen["segment"]] if live else []), f"run is {seen['state']}, open segments {opened}"
    over = seen["state"] in ("completed", "failed", "cancelled", "cancelling")
    effects = [row for row in seen["deliveries"] if row["consumer"] == "effect"]
    deliveries = {row["entry_id"]: DeliveryState(row["state"]) for row in effects}
    for action in seen["actions"]:
        settled = ActionState(action["state"]).settled
        delivery = deliveries[action["action_id"]]
        closed = delivery in (DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.DISCARDED)
        assert closed == settled, f"{action['action_id']} is {action['state']}, its delivery {delivery}"
        given_up = over and action["state"] == "PREPARED" and action["undoes"] is None
        assert not given_up, f"{action['action_id']} is PREPARED and its run over"
    for approval in seen["approvals"]:
        action = next(a for a in seen["actions"] if a["action_id"] == approval["action_id"])
        if action["state"] == "CANCELLED":
            done_with = ("rejected", "expired", "void", "superseded")
            assert approval["state"] in done_with, f"cancelled, its approval {approval['state']}"
        late = approval["state"] == "void" and approval["supersedes"] is not None and action["state"] == "SUCCEEDED"
        if approval["state"] in ("rejected", "expired", "void") and not late:
            assert action["state"] == "CANCELLED", f"{approval['state']}, its action {action['state']}"


def woken(seen: Mapping[str, Any], n: int) -> None:
    """Exactly one successor of segment `n` iff it waited and nothing it waits for is open."""
    segment = seen["segments"][n]
    successors = [s for s in seen["segments"] if s["n"] > n]
    open_waits = [w for w in seen["waits"] if w["segment"] == n and w["state"] == "open"]
    if segment["outcome"] == "waiting" and seen["state"] != "cancelled":
        assert bool(successors) != bool(open_waits), f"lost or early: {open_waits} open, successors {successors}"
        assert (seen["state"] == "waiting") == bool(open_waits)
    if seen["state"] == "cancelled":
        assert not open_waits
    assert len(successors) <= 1, f"woken twice: {successors}"
    approved = {a["action_id"]: a["state"] for a in sorted(seen["approvals"], key=lambda a: a["n"])}
    states = {a["action_id"]: a["state"] for a in seen["actions"]}
    for wait in seen["waits"]:
        action_id = wait["action_id"]
        if wait["state"] == "open" and wait["kind"] == "approval":
            assert approved[action_id] == "pending", f"{action_id} is {approved[action_id]} and still waited for"
        if wait["state"] == "open" and wait["kind"] in ("delivery", "verification"):
            assert not ActionState(states[action_id]).settled, f"{action_id} is settled and still waited for"
        if wait["outcome"] == "denied" and wait["kind"] in ("approval", "follows"):
            assert states[action_id] == "CANCELLED", f"{action_id} was denied and is {states[action_id]}"
        if wait["outcome"] == "go" and wait["kind"] == "approval" and seen["state"] in ("waiting", "queued"):
            assert approved[action_id] == "approved", f"{action_id} may go and is {approved[action_id]}"


def shown(seen: Mapping[str, Any]) -> str:
    """For the person who reads a failure."""
    brief = {k: v for k, v in seen.items() if k in ("state", "segment", "generation", "event_seq")}
    lines = [json.dumps(brief)]
    for name, keys in (
        ("segments", ("n", "state", "outcome")),
        ("waits", ("segment", "kind", "action_id", "state", "outcome")),
        ("actions", ("action_id", "state", "attempt", "reason")),
        ("approvals", ("approval_id", "state")),
        ("deliveries", ("entry_id", "consumer", "state", "attempt", "worker_id")),
        ("receipts", ("action_id", "attempt", "source", "worker_id", "contradiction")),
        ("events", ("seq", "kind", "generation", "data")),
        ("engine", ("id", "status")),
    ):
        lines += [f"  {name}: " + " ".join(f"{k}={row[k]}" for k in keys) for row in seen[name]]
    return "\n".join(lines)
