"""What people may do over the API to versions, limits, schedules and policies, and what removing reads of tokens."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_apart

revision = "0040"
down_revision = "0037"

# What an administrator changes over the API, and nobody who is bound to a tenant.
_ADMINISTERED = ("limits", "retention_policies", "versions", "version_agents", "agents")


def upgrade() -> None:
    policies = [
        f"drop policy if exists admin on surefoot.{table};"
        f"create policy admin on surefoot.{table} to surefoot_admin using (true)"
        for table in _ADMINISTERED
    ]
    script = files("transactions").joinpath("migrations", "versions", "0040_rights_of_people.sql").read_text()
    run_apart(op.get_bind(), [*policies, *(part for part in script.split(";\n") if part.strip())])
