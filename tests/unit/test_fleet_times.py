"""What is measured of a fleet under fire, from made-up records."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.crashtest.fleet import AGAIN, Report, shortcomings
from app.crashtest.fleet_crew import Hit
from app.crashtest.fleet_times import percentile, recoveries

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def event(seq: int, kind: str, worker_id: str, seconds: float) -> dict[str, Any]:
    return {"run_id": "r", "seq": seq, "kind": kind, "worker_id": worker_id, "at": at(seconds)}


def hit(worker_id: str, seconds: float, seq: int) -> Hit:
    return Hit("kill", worker_id, at(seconds), at(seconds + 0.5), [("r", seq)])


def measured(hits: Sequence[Hit], *events: dict[str, Any]) -> list[float]:
    return [one.seconds for one in recoveries(hits, events)]


def test_from_the_blow_until_it_began_elsewhere() -> None:
    began = event(1, "segment.began", "ada", 0.0), event(4, "segment.began", "bob", 4.0)
    assert measured([hit("ada", 1.0, 3)], *began) == [3.0]


def test_what_the_struck_worker_still_wrote_is_its_last_sign_of_life() -> None:
    events = event(4, "step.done", "ada", 1.25), event(5, "segment.began", "bob", 4.0)
    assert measured([hit("ada", 1.0, 3)], *events) == [2.75]


def test_what_a_worker_that_woke_still_wrote_is_none() -> None:
    events = event(4, "receipt.kept", "ada", 3.5), event(5, "segment.began", "bob", 4.0)
    assert measured([hit("ada", 1.0, 3)], *events) == [3.0]
    too_late = event(4, "segment.began", "ada", 3.5), event(5, "segment.began", "bob", 4.0)
    assert measured([hit("ada", 1.0, 3)], *too_late) == [3.0]


def test_a_claim_that_was_struck_again_counts_from_both_blows() -> None:
    hits = [hit("ada", 1.0, 3), hit("bob", 2.0, 3)]
    found = recoveries(hits, [event(4, "segment.began", "eve", 5.0)])
    assert [(one.seconds, one.blows) for one in found] == [(4.0, 2), (3.0, 1)]


def test_a_segment_that_had_ended_by_then_and_a_run_that_never_went_on_are_left_out() -> None:
    ended = event(4, "run.waiting", "ada", 1.1), event(5, "segment.began", "bob", 40.0)
    assert measured([hit("ada", 1.0, 3)], *ended) == []
    assert measured([hit("ada", 1.0, 3)]) == []


def test_percentiles_are_of_what_was_measured() -> None:
    seconds = [float(n) for n in range(1, 101)]
    assert [percentile(seconds, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.99) == 0.0


def spread(times: int, p99: float = 4.0) -> dict[str, float]:
    return {"times": times, "p50": 1.0, "p99": p99, "max": p99}


def report(residual: int = 0, hits: int = 60, all_: dict[str, float] | None = None, again: float = 0.0) -> Report:
    recovered = {"all": all_ or spread(60), AGAIN: spread(1, again)}
    return Report(200, 120.0, 3.0, {}, hits, 60, {"residual": residual}, {}, recovered)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (report(), []),
        (report(residual=2), []),
        (report(residual=3), ["3 runs have a residual duplicate"]),
        (report(hits=59), ["only 59 blows"]),
        (report(all_=spread(0, 0.0)), ["only 0 times"]),  # no time at all is not a short one
        (report(all_=spread(60, 5.01)), ["all: runs went on elsewhere after 5.01 s"]),
        (report(again=5.01), [f"{AGAIN}: runs went on elsewhere after 5.01 s"]),
    ],
)
def test_what_is_short_of_what_has_to_be_shown_is_told(measured: Report, said: Sequence[str]) -> None:
    found = list(shortcomings(measured, wanted=60))
    assert len(found) == len(said)
    assert all(one.startswith(words) for one, words in zip(found, said, strict=True))
