"""The base: everything that commits, every state machine, all SQL. See README.md beside this file."""

from transactions.access import API, WORKER, Access
from transactions.artifact_store import ArtifactStore
from transactions.artifacts import ArtifactRef
from transactions.canonical import UNSTORABLE, canonical_json, is_storable, request_hash, storable_reason
from transactions.database import Database, Limits, Session, is_transient, is_unstorable, until_committed
from transactions.errors import (
    ArtifactDamaged,
    Cancelling,
    Conflict,
    DatabaseUnavailable,
    Fenced,
    Forbidden,
    InvalidInput,
    NotFound,
    RequestChanged,
    StoreFailed,
    StoreUnavailable,
    SurefootError,
    TransactionTooLong,
    Unauthenticated,
    UnknownAgent,
)
from transactions.events import Event, Execution, number, number_done, number_fenced
from transactions.failpoints import failpoint
from transactions.failures import Classify, Failure, FailureClass
from transactions.ids import DEFAULT_TENANT, ActionId, ApprovalId, EntryId, RunId, Tenant, WorkerId
from transactions.principals import Principal, Role
from transactions.states import ActionState, ApprovalState, DeliveryState, RunState
from transactions.steps import StepRow
from transactions.steps import record as record_steps
from transactions.tx import Run, Tx
from transactions.wakeups import Wakeups

__all__ = [
    "API",
    "DEFAULT_TENANT",
    "UNSTORABLE",
    "WORKER",
    "Access",
    "ActionId",
    "ActionState",
    "ApprovalId",
    "ApprovalState",
    "ArtifactDamaged",
    "ArtifactRef",
    "ArtifactStore",
    "Cancelling",
    "Classify",
    "Conflict",
    "Database",
    "DatabaseUnavailable",
    "DeliveryState",
    "EntryId",
    "Event",
    "Execution",
    "Failure",
    "FailureClass",
    "Fenced",
    "Forbidden",
    "InvalidInput",
    "Limits",
    "NotFound",
    "Principal",
    "RequestChanged",
    "Role",
    "Run",
    "RunId",
    "RunState",
    "Session",
    "StepRow",
    "StoreFailed",
    "StoreUnavailable",
    "SurefootError",
    "Tenant",
    "TransactionTooLong",
    "Tx",
    "Unauthenticated",
    "UnknownAgent",
    "Wakeups",
    "WorkerId",
    "canonical_json",
    "failpoint",
    "is_storable",
    "is_transient",
    "is_unstorable",
    "number",
    "number_done",
    "number_fenced",
    "record_steps",
    "request_hash",
    "storable_reason",
    "until_committed",
]
