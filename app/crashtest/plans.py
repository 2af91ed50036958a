"""Seeded plans: which faults the cases of a session have."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from app.crashtest.faults import (
    ANY,
    CONNECTION,
    CONNECTION_KINDS,
    LEAVING,
    MOMENT,
    WORKER_KINDS,
    Fault,
    Faults,
    Kind,
)

Plan = Literal["mixed", "exhaustive", "moments"]
SEQUENCE_MAX = 10
# Points of the loops that every worker passes at its own pace, whatever a run does: not each passage is another window.
BEATS = ("lease.", "relay.claim", "watchdog.", "share.look", "queue.", "schedule.")
LOOPS = (*BEATS, "worker.", "query.")
LOOP_PASSAGES_MAX = 3
_OTHERS_IN_SEQUENCE = 0.2
_CASES_A_RESTART = 40
_MOMENTS = ("before_commit", "after_commit")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The points of a traced run in the order they were passed, how long it took in seconds, and how many connections
    to services it made.

    persons: the beginnings of the points that people pass, whose processes are struck but not traced.
    """

    passed: tuple[str, ...]
    seconds: float
    connections: int = 0
    persons: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """How often each point was passed; those of loops at most LOOP_PASSAGES_MAX times."""
        counted = Counter(self.passed)
        return {
            point: min(count, LOOP_PASSAGES_MAX) if point.startswith(LOOPS) else count
            for point, count in counted.items()
        }

    def singles(self, kind: Kind) -> list[Faults]:
        """Every point at every passage: the first passages of all points first. Each connection."""
        if kind in CONNECTION_KINDS:
            last = 1 if kind == "refused" else self.connections
            return [(Fault(kind, CONNECTION, n),) for n in range(1, last + 1)]
        if kind == "freeze":  # alone, it is a stop
            return []
        found = sorted((n, point) for point, count in self.counts().items() for n in range(1, count + 1))
        if kind == "kill":
            found += [(1, f"{name}{moment}") for name in (*self.persons, LEAVING) for moment in _MOMENTS]
        return [(Fault(kind, point, n),) for n, point in sorted(found, key=lambda one: one[0])]


def plan(catalogue: Catalogue, *, kind: Plan, cases: int, seed: int, kinds: Sequence[Kind]) -> list[Faults]:
    """Which cases to play, drawn with the seed.

    mixed: `cases` of them: three parts in five are single faults as long as there are any, of every kind in turn (but
    for restarts of the database, which are played alone: one in forty); the others are pairs, sequences, random
    moments, connections. exhaustive: every single fault, however many there are. moments: kills at random moments.
    """
    draw = random.Random(seed)  # noqa: S311  to be drawn again, not to be secret
    if kind == "moments":
        return [(_moment(catalogue, draw),) for _ in range(cases)]
    mixed = kind == "mixed"
    singles = {one: _first_passages_first(catalogue.singles(one), draw if mixed else None) for one in kinds}
    if mixed and "db-restart" in singles:
        singles["db-restart"] = singles["db-restart"][: 1 + cases // _CASES_A_RESTART]
    found = _in_turn([*singles.values()])
    if mixed:
        others = _others(catalogue, draw, kinds)
        found = found[: max(1, cases * 3 // 5)]
        found += islice(others, cases - len(found))
        draw.shuffle(found)
    return found


def beyond(point: str, faults: Faults) -> Faults:
    """For a point that was passed only by a worker that went on after `faults`: the same, and a kill there."""
    return (*faults, Fault("kill", point, 1))


def _first_passages_first(found: Sequence[Faults], draw: random.Random | None) -> list[Faults]:
    """In random order with `draw`, but the first passages of all points before second ones."""
    drawn = [*found]
    if draw is not None:
        draw.shuffle(drawn)
    return sorted(drawn, key=lambda faults: faults[0].passage > 1)


def _in_turn(singles: Sequence[Sequence[Faults]]) -> list[Faults]:
    """One of each kind after the other, as long as it has any."""
    longest = max(map(len, singles), default=0)
    return [found[n] for n in range(longest) for found in singles if n < len(found)]


def _others(catalogue: Catalogue, draw: random.Random, kinds: Sequence[Kind]) -> Iterator[Faults]:
    striking: list[Kind] = [kind for kind in WORKER_KINDS if kind in kinds and kind != "db-restart"]
    losing: list[Kind] = [kind for kind in CONNECTION_KINDS if kind in kinds]
    while striking or (losing and catalogue.connections):
        if striking:
            yield _pair(catalogue, draw, striking)
            yield _sequence(catalogue, draw, striking)
        if "kill" in striking:
            yield (_moment(catalogue, draw),)
        if losing and catalogue.connections:
            others = _pair(catalogue, draw, striking) if striking else ()
            yield (*others, *_connections(catalogue, draw, losing))


def _moment(catalogue: Catalogue, draw: random.Random) -> Fault:
    return Fault("kill", MOMENT, draw.randint(1, int(catalogue.seconds * 1000)))


def _connections(catalogue: Catalogue, draw: random.Random, kinds: Sequence[Kind]) -> Iterable[Fault]:
    numbers = draw.sample(range(1, catalogue.connections + 1), draw.randint(1, min(2, catalogue.connections)))
    return [Fault(draw.choice(kinds), CONNECTION, number) for number in numbers]


def _pair(catalogue: Catalogue, draw: random.Random, kinds: Sequence[Kind]) -> Faults:
    return _along(catalogue, draw, [draw.choice(kinds), draw.choice(kinds)])


def _sequence(catalogue: Catalogue, draw: random.Random, kinds: Sequence[Kind]) -> Faults:
    length = draw.randint(3, SEQUENCE_MAX)
    drawn: list[Kind] = [draw.choice(kinds) if draw.random() < _OTHERS_IN_SEQUENCE else kinds[0] for _ in range(length)]
    if draw.random() < 0.5:
        return _along(catalogue, draw, drawn)
    return tuple(Fault(kind, ANY, draw.randint(1, 1 + len(catalogue.passed) // 4)) for kind in drawn)


def _along(catalogue: Catalogue, draw: random.Random, kinds: Sequence[Kind]) -> Faults:
    """Faults at points further and further on: a worker passes what the one before it had still to pass."""
    passed = [point for point in catalogue.passed if not point.startswith(LOOPS)]
    faults: list[Fault] = []
    begin = 0
    for kind, at in zip(kinds, sorted(draw.sample(range(len(passed)), min(len(kinds), len(passed)))), strict=False):
        faults.append(Fault(kind, passed[at], passed[begin : at + 1].count(passed[at])))
        begin = at + 1
    return tuple(faults)
