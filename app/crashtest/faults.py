"""What strikes a case: faults, and the words they are told in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from transactions import InvalidInput

# What strikes a worker, at a point it passes ...
WorkerKind = Literal["kill", "stop", "freeze", "partition", "db-restart"]
# ... and what becomes of a connection to a service.
ConnectionKind = Literal[
    "lost-response", "late", "silence", "refused", "reset", "slow", "rate-limited", "server-error", "garbage"
]
Kind = WorkerKind | ConnectionKind
WORKER_KINDS: tuple[WorkerKind, ...] = get_args(WorkerKind)
CONNECTION_KINDS: tuple[ConnectionKind, ...] = get_args(ConnectionKind)
KINDS: tuple[Kind, ...] = (*WORKER_KINDS, *CONNECTION_KINDS)

ANY = "*"  # any point: the passage counts all of them
MOMENT = "moment"  # no point: the passage is milliseconds since the worker was forked
CONNECTION = "connection"  # the passage counts the case's connections to services
# Commits that a person makes, in a process of their own; and one that only a worker makes which is asked to leave.
STARTED, DECIDED, CANCELLED, SETTLED = "run.start.", "approval.decide.", "run.cancel.", "action.settle."
LEAVING = "worker.release."
PERSONS = (STARTED, DECIDED, CANCELLED, SETTLED)
_ENDS = (*PERSONS, LEAVING, MOMENT)  # where a process can only be killed


@dataclass(frozen=True, slots=True)
class Fault:
    """At its `passage`-th passage of `point` a process is killed, stopped, cut off from the database, or sees the
    database end; of `connection`, the case's `passage`-th connection to a service goes wrong. Only the first ones are
    refused, until an effect was.
    """

    kind: Kind
    point: str
    passage: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.point}:{self.passage}"

    @property
    def of_person(self) -> bool:
        return self.point.startswith(PERSONS)

    @property
    def of_worker(self) -> bool:
        return self.point != CONNECTION and not self.of_person

    @property
    def armed(self) -> str | None:
        """The value of SUREFOOT_FAILPOINT; None for what the driver does by itself.

        But for a kill the process stops there, and goes on when the driver has done the rest.
        """
        if self.point in (MOMENT, CONNECTION):
            return None
        return f"{self.point}:{self.passage}" + ("" if self.kind == "kill" else ":stop")


Faults = tuple[Fault, ...]


def parse(seed: str) -> Faults:
    """The faults of a case from the text it prints: `kill:effect.after_send:1,lost-response:connection:2`.

    Raises InvalidInput.
    """
    named: dict[str, Kind] = {kind: kind for kind in KINDS}
    faults: list[Fault] = []
    for text in filter(None, (part.strip() for part in seed.split(","))):
        kind, _, rest = text.partition(":")
        point, _, passage = rest.rpartition(":")
        known = named.get(kind)
        numbered = passage.isdecimal() and int(passage) >= 1
        fits = (known in CONNECTION_KINDS) == (point == CONNECTION) and (known == "kill" or not point.startswith(_ENDS))
        if known is None or not point or not numbered or not fits:
            raise InvalidInput(
                f"{text!r} is no fault: write KIND:POINT:PASSAGE as a case does, such as kill:effect.after_send:1, "
                f"where KIND is one of {', '.join(WORKER_KINDS)}; "
                f"or KIND:{CONNECTION}:PASSAGE, where it is one of {', '.join(CONNECTION_KINDS)}."
            )
        faults.append(Fault(known, point, int(passage)))
    return tuple(faults)


def kinds_of(text: str) -> list[Kind]:
    """The kinds of `kill,stop`. Raises InvalidInput."""
    asked = {kind.strip() for kind in text.split(",") if kind.strip()}
    if unknown := asked.difference(KINDS):
        raise InvalidInput(f"--faults {', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}.")
    return [kind for kind in KINDS if kind in asked]


def show(faults: Sequence[Fault]) -> str:
    """The text that `parse` reads."""
    return ",".join(map(str, faults)) or "undisturbed"
