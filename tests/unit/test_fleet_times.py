"""What is measured of a fleet under fire, from made-up records."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from app.crashtest.fleet_crew import Hit
from app.crashtest.fleet_times import percentile, recoveries

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def event(seq: int, kind: str, worker_id: str, seconds: float) -> dict[str, Any]:
    return {"run_id": "r", "seq": seq, "kind": kind, "worker_id": worker_id, "at": at(seconds)}


def hit(worker_id: str, seconds: float, seq: int) -> Hit:
    return Hit("kill", worker_id, at(seconds), [("r", seq)])


def measured(hits: Sequence[Hit], *events: dict[str, Any]) -> list[float]:
    return [one.seconds for one in recoveries(hits, events)]


def test_from_the_blow_until_it_began_elsewhere() -> None:
    began = event(1, "segment.began", "ada", 0.0), event(4, "segment.began", "bob", 4.0)
    assert measured([hit("ada", 1.0, 3)], *began) == [3.0]


def test_what_the_struck_worker_still_wrote_is_its_last_sign_of_life() -> None:
    events = event(4, "step.done", "ada", 1.25), event(5, "segment.began", "bob", 4.0)
    assert measured([hit("ada", 1.0, 3)], *events) == [2.75]


def test_a_claim_that_was_struck_again_counts_from_that_blow() -> None:
    hits = [hit("ada", 1.0, 3), hit("bob", 2.0, 3)]
    assert measured(hits, event(4, "segment.began", "eve", 5.0)) == [3.0]


def test_a_segment_that_had_ended_by_then_and_a_run_that_never_went_on_are_left_out() -> None:
    ended = event(4, "run.waiting", "ada", 1.1), event(5, "segment.began", "bob", 40.0)
    assert measured([hit("ada", 1.0, 3)], *ended) == []
    assert measured([hit("ada", 1.0, 3)]) == []


def test_percentiles_are_of_what_was_measured() -> None:
    seconds = [float(n) for n in range(1, 101)]
    assert [percentile(seconds, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.99) == 0.0
