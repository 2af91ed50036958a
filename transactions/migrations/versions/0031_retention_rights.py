"""What the role that removes may do to which table, and the indexes that removing needs.

One table's lock at a time, each for a moment; indexes are built beside those who read and write.
"""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from alembic import op

from transactions.statements import run_apart

revision = "0031"
down_revision = "0030"

_DELETES = (
    "action_calls", "actions", "api_tokens", "approval_decisions", "approvals", "artifacts", "attempts", "decisions",
    "events", "inbox", "model_calls", "model_messages", "outbox_deliveries", "outbox_entries", "outbox_keys",
    "receipts", "run_states", "runs", "segments", "state_migrations", "steps", "verifications", "waits", "workers",
)  # fmt: skip
# To lock a row takes the right to update a column of it. Of what else is written, `runs` says what was removed.
_UPDATES: Mapping[str, str] = MappingProxyType({
    "actions": "updated_at",
    "outbox_entries": "created_at",
    "outbox_deliveries": "settled_at",
    "outbox_keys": "last_seq",
    "runs": "event_seq, messages_removed_at, events_removed_at, outbox_removed_at",
})  # fmt: skip
_READS = ("agents", "limits", "schedules", "tenants")
_ENGINE = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")


def upgrade() -> None:
    rights = ["grant usage on schema surefoot, dbos to surefoot_retention"]
    for table in (*_DELETES, *_READS):
        rights.append(
            f"drop policy if exists retention on surefoot.{table};"
            f"create policy retention on surefoot.{table} to surefoot_retention using (true)"
        )
        rights.append(f"grant select on surefoot.{table} to surefoot_retention")
    rights += [f"grant delete on surefoot.{table} to surefoot_retention" for table in _DELETES]
    rights += [
        f"grant update ({columns}) on surefoot.{table} to surefoot_retention" for table, columns in _UPDATES.items()
    ]
    rights += ["grant insert on surefoot.events, surefoot.staged_objects to surefoot_retention"]
    rights.append(
        "drop policy if exists retention on surefoot.staged_objects;"
        "create policy retention on surefoot.staged_objects to surefoot_retention using (true)"
    )
    rights += [f"grant select, delete on dbos.{table} to surefoot_retention" for table in _ENGINE]
    rights.append("grant update (updated_at) on dbos.workflow_status to surefoot_retention")
    rights.append("alter default privileges in schema dbos grant select, delete on tables to surefoot_retention")
    script = files("transactions").joinpath("migrations", "versions", "0031_retention_indexes.sql").read_text()
    run_apart(op.get_bind(), [*rights, *(part for part in script.split(";\n") if part.strip())])
