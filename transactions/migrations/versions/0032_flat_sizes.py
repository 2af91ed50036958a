"""What keeps tables and indexes as large as what is in them: room for updates, and vacuum before a fifth of a table
is dead.
"""

from importlib.resources import files

from alembic import op

from transactions.statements import run_apart

revision = "0032"
down_revision = "0031"

# Written for every run and removed by retention, or by the engine's own changes of state.
_HOT = (
    "surefoot.runs", "surefoot.segments", "surefoot.run_states", "surefoot.events", "surefoot.steps",
    "surefoot.model_calls", "surefoot.actions", "surefoot.action_calls", "surefoot.attempts", "surefoot.receipts",
    "surefoot.waits", "surefoot.approvals", "surefoot.outbox_entries", "surefoot.outbox_deliveries", "surefoot.inbox",
    "surefoot.staged_objects", "dbos.workflow_status",
)  # fmt: skip
# The same, with values that are stored apart from their rows.
_WIDE = (
    "surefoot.model_messages", "surefoot.artifacts", "dbos.workflow_input", "dbos.workflow_output",
    "dbos.operation_outputs",
)  # fmt: skip
_EARLY = (
    "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.05"
)
_APART = "toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 500"


def upgrade() -> None:
    script = files("transactions").joinpath("migrations", "versions", "0032_flat_sizes.sql").read_text()
    early = [f"alter table {table} set ({_EARLY})" for table in _HOT]
    early += [f"alter table {table} set ({_EARLY}, {_APART})" for table in _WIDE]
    run_apart(op.get_bind(), [*(part for part in script.split(";\n") if part.strip()), *early])
