"""What happens to the workers of a case: faults, and seeded plans of them."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from transactions import InvalidInput

Kind = Literal["kill", "stop", "lost-response"]
KINDS: tuple[Kind, ...] = ("kill", "stop", "lost-response")
ANY = "*"  # any point: the passage counts all of them
MOMENT = "moment"  # no point: the passage is milliseconds since the worker was forked
CONNECTION = "connection"  # of a lost response: the passage counts the case's connections to services
CONNECTIONS_MAX = 3
SEQUENCE_MAX = 10
# Points of the loops that every worker passes at its own pace, whatever a run does: not each passage is another window.
LOOPS = ("lease.", "relay.claim", "watchdog.", "worker.", "query.")
LOOP_PASSAGES_MAX = 3
_STOPS_IN_SEQUENCE = 0.15


@dataclass(frozen=True, slots=True)
class Fault:
    """What strikes one worker: at its `passage`-th passage of `point` it is killed, or stopped for over a lease.

    A lost response strikes whoever makes that connection.
    """

    kind: Kind
    point: str
    passage: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.point}:{self.passage}"

    @property
    def armed(self) -> str | None:
        """The value of SUREFOOT_FAILPOINT; None for what the driver does: a random moment, a lost response."""
        if self.point in (MOMENT, CONNECTION):
            return None
        return f"{self.point}:{self.passage}" + (":stop" if self.kind == "stop" else "")


Faults = tuple[Fault, ...]


def parse(seed: str) -> Faults:
    """The faults of a case from the text it prints: `kill:effect.after_send:1,stop:segment.before_end:2`.

    Raises InvalidInput.
    """
    named: dict[str, Kind] = {kind: kind for kind in KINDS}
    faults: list[Fault] = []
    for text in filter(None, (part.strip() for part in seed.split(","))):
        kind, _, rest = text.partition(":")
        point, _, passage = rest.rpartition(":")
        known = named.get(kind)
        if known is None or not point or not passage.isdecimal() or int(passage) < 1:
            raise InvalidInput(f"{text!r} is no fault: write kill:POINT:PASSAGE or stop:POINT:PASSAGE, as a case does.")
        faults.append(Fault(known, point, int(passage)))
    return tuple(faults)


def show(faults: Sequence[Fault]) -> str:
    """The text that `parse` reads."""
    return ",".join(map(str, faults)) or "undisturbed"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The points of a traced run in the order they were passed, and how long it took in seconds."""

    passed: tuple[str, ...]
    seconds: float

    def counts(self) -> dict[str, int]:
        """How often each point was passed; those of loops at most LOOP_PASSAGES_MAX times."""
        counted = Counter(self.passed)
        return {
            point: min(count, LOOP_PASSAGES_MAX) if point.startswith(LOOPS) else count
            for point, count in counted.items()
        }

    def singles(self, kind: Kind) -> list[Faults]:
        """Every point at every passage: the first passages of all points first. Of responses the first few."""
        if kind == "lost-response":
            return [(Fault(kind, CONNECTION, n),) for n in range(1, CONNECTIONS_MAX + 1)]
        found = [(n, point) for point, count in self.counts().items() for n in range(1, count + 1)]
        return [(Fault(kind, point, n),) for n, point in sorted(found, key=lambda one: one[0])]


def plan(
    catalogue: Catalogue, recovery: Iterable[str], *, cases: int, seed: int, kinds: Sequence[Kind]
) -> list[Faults]:
    """So many cases, drawn with the seed: the exhaustive singles (a sample when `cases` is small), pairs of one and
    what strikes the worker that recovers (`recovery`: points seen there), sequences, random moments.

    Three parts in five are singles as long as there are any; the rest is shared by the others, 2 : 2 : 1.
    """
    draw = random.Random(seed)  # noqa: S311  to be drawn again, not to be secret
    singles = [faults for kind in kinds for faults in catalogue.singles(kind)]
    room = max(1, cases * 3 // 5)
    if len(singles) > room:
        singles = _sample(singles, room, draw)
    striking: list[Kind] = [kind for kind in kinds if {kind}.isdisjoint({"lost-response"})]
    others = (
        _others(catalogue, sorted(set(recovery)), draw, striking, lost="lost-response" in kinds)
        if striking
        else _lost_only(draw)
    )
    found = [*singles, *(next(others) for _ in range(cases - len(singles)))]
    draw.shuffle(found)
    return found


def _sample(singles: Sequence[Faults], room: int, draw: random.Random) -> list[Faults]:
    """First passages of every point before second ones."""
    first = [faults for faults in singles if faults[0].passage == 1]
    later = [faults for faults in singles if faults[0].passage > 1]
    draw.shuffle(first)
    draw.shuffle(later)
    return [*first, *later][:room]


def _others(
    catalogue: Catalogue, recovery: Sequence[str], draw: random.Random, kinds: Sequence[Kind], *, lost: bool
) -> Iterator[Faults]:
    while True:
        yield _pair(catalogue, recovery, draw, kinds)
        yield _sequence(catalogue, recovery, draw, kinds)
        yield _pair(catalogue, recovery, draw, kinds)
        yield _sequence(catalogue, recovery, draw, kinds)
        if "kill" in kinds:
            yield (Fault("kill", MOMENT, draw.randint(1, int(catalogue.seconds * 1000))),)
        if lost:
            yield (*_pair(catalogue, recovery, draw, kinds), _lost(draw))


def _lost_only(draw: random.Random) -> Iterator[Faults]:
    while True:
        yield (_lost(draw), _lost(draw))


def _lost(draw: random.Random) -> Fault:
    return Fault("lost-response", CONNECTION, draw.randint(1, CONNECTIONS_MAX))


def _pair(catalogue: Catalogue, recovery: Sequence[str], draw: random.Random, kinds: Sequence[Kind]) -> Faults:
    point, count = draw.choice(list(catalogue.counts().items()))
    first = Fault(draw.choice(kinds), point, draw.randint(1, count))
    return (first, Fault(draw.choice(kinds), draw.choice(recovery), draw.randint(1, 2)))


def _sequence(catalogue: Catalogue, recovery: Sequence[str], draw: random.Random, kinds: Sequence[Kind]) -> Faults:
    faults: list[Fault] = []
    for n in range(draw.randint(3, SEQUENCE_MAX)):
        kind = kinds[0] if draw.random() > _STOPS_IN_SEQUENCE else draw.choice(kinds)
        if draw.random() < 0.5:
            faults.append(Fault(kind, ANY, draw.randint(1, 1 + len(catalogue.passed) // 4)))
        else:
            points = recovery if n else [*catalogue.counts()]  # the first worker recovers nothing
            faults.append(Fault(kind, draw.choice(points), draw.randint(1, 2)))
    return tuple(faults)
