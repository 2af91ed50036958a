"""The state machines: enums and transition tables.

CHECK constraints, the database's own table (`surefoot.transitions()`), which triggers enforce, and the diagrams of
README.md say the same; `tests/unit/test_states.py` holds them equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    HELD = "held"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)

    @property
    def takes_nothing_new(self) -> bool:
        """Over, or being cancelled: no action of it is claimed any more."""
        return self.ended or self is RunState.CANCELLING


class SegmentState(StrEnum):
    DELAYED = "delayed"  # it is not due yet
    WAITING = "waiting"  # for its turn
    OPEN = "open"  # the engine has it
    SETTLED = "settled"


class ActionState(StrEnum):
    PREPARED = "PREPARED"
    IN_FLIGHT = "IN_FLIGHT"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    CANCELLED = "CANCELLED"

    @property
    def settled(self) -> bool:
        return self in (ActionState.SUCCEEDED, ActionState.FAILED, ActionState.CANCELLED)


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    VOID = "void"
    SUPERSEDED = "superseded"


class DeliveryState(StrEnum):
    PARKED = "parked"
    PENDING = "pending"
    CLAIMED = "claimed"
    DELIVERED = "delivered"
    DEAD = "dead"
    DISCARDED = "discarded"


Transitions = Mapping[StrEnum, frozenset[StrEnum]]

_R, _S, _A, _P, _D = RunState, SegmentState, ActionState, ApprovalState, DeliveryState

RUN_TRANSITIONS: Transitions = MappingProxyType(
    {
        _R.QUEUED: frozenset({_R.RUNNING, _R.HELD, _R.FAILED, _R.CANCELLED}),
        _R.RUNNING: frozenset({_R.RUNNING, _R.QUEUED, _R.WAITING, _R.HELD, _R.CANCELLING, _R.COMPLETED, _R.FAILED}),
        _R.WAITING: frozenset({_R.QUEUED, _R.HELD, _R.CANCELLED}),
        _R.HELD: frozenset({_R.QUEUED, _R.WAITING, _R.CANCELLED}),
        _R.CANCELLING: frozenset({_R.CANCELLED}),
        _R.COMPLETED: frozenset(),
        _R.FAILED: frozenset(),
        _R.CANCELLED: frozenset(),
    }
)

SEGMENT_TRANSITIONS: Transitions = MappingProxyType(
    {
        _S.DELAYED: frozenset({_S.WAITING, _S.SETTLED}),
        _S.WAITING: frozenset({_S.OPEN, _S.SETTLED}),
        _S.OPEN: frozenset({_S.WAITING, _S.SETTLED}),
        _S.SETTLED: frozenset(),
    }
)

ACTION_TRANSITIONS: Transitions = MappingProxyType(
    {
        _A.PREPARED: frozenset({_A.IN_FLIGHT, _A.SUCCEEDED, _A.FAILED, _A.UNKNOWN, _A.CANCELLED}),
        _A.IN_FLIGHT: frozenset({_A.SUCCEEDED, _A.FAILED, _A.UNKNOWN, _A.PREPARED}),
        _A.UNKNOWN: frozenset({_A.SUCCEEDED, _A.FAILED, _A.PREPARED}),
        _A.SUCCEEDED: frozenset(),
        _A.FAILED: frozenset(),
        _A.CANCELLED: frozenset(),
    }
)

APPROVAL_TRANSITIONS: Transitions = MappingProxyType(
    {
        _P.PENDING: frozenset({_P.APPROVED, _P.REJECTED, _P.EXPIRED, _P.VOID, _P.SUPERSEDED}),
        _P.APPROVED: frozenset({_P.VOID, _P.SUPERSEDED}),
        _P.REJECTED: frozenset(),
        _P.EXPIRED: frozenset(),
        _P.VOID: frozenset(),
        _P.SUPERSEDED: frozenset(),
    }
)

DELIVERY_TRANSITIONS: Transitions = MappingProxyType(
    {
        _D.PARKED: frozenset({_D.PENDING, _D.CLAIMED, _D.DELIVERED, _D.DEAD, _D.DISCARDED}),
        _D.PENDING: frozenset({_D.PARKED, _D.CLAIMED, _D.DELIVERED, _D.DEAD, _D.DISCARDED}),
        _D.CLAIMED: frozenset({_D.PARKED, _D.CLAIMED, _D.PENDING, _D.DELIVERED, _D.DEAD, _D.DISCARDED}),
        _D.DELIVERED: frozenset(),
        _D.DEAD: frozenset({_D.PENDING, _D.DISCARDED}),  # a person says so
        _D.DISCARDED: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The states of the rows of one table, those in which a row may be inserted, and what may follow each."""

    table: str
    states: type[StrEnum]
    starts: frozenset[StrEnum]
    transitions: Transitions


MACHINES = (
    Machine("runs", RunState, frozenset({_R.QUEUED}), RUN_TRANSITIONS),
    Machine("segments", SegmentState, frozenset({_S.DELAYED, _S.WAITING, _S.OPEN}), SEGMENT_TRANSITIONS),
    Machine("actions", ActionState, frozenset({_A.PREPARED}), ACTION_TRANSITIONS),
    Machine("approvals", ApprovalState, frozenset({_P.PENDING}), APPROVAL_TRANSITIONS),
    Machine("outbox_deliveries", DeliveryState, frozenset({_D.PARKED, _D.PENDING}), DELIVERY_TRANSITIONS),
)
