"""How long it took from a blow to a worker until each run that it was at ran elsewhere, from the record alone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.crashtest.fleet_crew import Hit

# The events that tell which worker had a run when.
EVENTS = """
select run_id, seq, kind, worker_id, at from surefoot.events where kind = 'segment.began' or worker_id is not null
 order by run_id, seq"""


@dataclass(frozen=True, slots=True)
class Recovery:
    """`seconds`: from the blow, or the last thing that its worker still wrote by then, until the run began elsewhere.

    blows: how many it took; more than one where who had claimed the run next was struck, too, before it had begun.
    """

    blow: str
    run_id: str
    seconds: float
    blows: int


def recoveries(hits: Sequence[Hit], events: Sequence[Mapping[str, Any]]) -> Iterator[Recovery]:
    """One for each blow and each run that the struck worker was at, and that went on elsewhere.

    Left out: one whose worker had ended its segment by the blow, for that one may wait for something.
    """
    of: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        of.setdefault(event["run_id"], []).append(event)
    struck: dict[str, list[datetime]] = {}
    for hit in hits:
        for run_id, _ in hit.runs:
            struck.setdefault(run_id, []).append(hit.at)
    for hit in hits:
        for run_id, seq in hit.runs:
            found = _recovery(hit, run_id, seq, of.get(run_id, []), struck[run_id])
            if found is not None:
                yield found


def _recovery(
    hit: Hit, run_id: str, seq: int, events: Sequence[Mapping[str, Any]], blows: Sequence[datetime]
) -> Recovery | None:
    since = hit.at
    for event in events:
        if event["seq"] <= seq:
            continue
        if event["worker_id"] == hit.worker_id:
            if event["at"] > hit.until:
                continue  # it woke, and what it had done before is a fact; it is no sign of life
            if event["kind"] == "segment.began" or str(event["kind"]).startswith("run."):
                return None
            since = max(since, event["at"])
        elif event["kind"] == "segment.began":
            again = sum(hit.at < blow < event["at"] for blow in blows)
            return Recovery(hit.blow, run_id, (event["at"] - since).total_seconds(), 1 + again)
    return None


def percentile(seconds: Sequence[float], share: float) -> float:
    """The smallest that at least this share of them does not exceed; 0 of none."""
    ordered = sorted(seconds)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
