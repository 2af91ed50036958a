"""Approvals that are asked about again, of several people, with reminders and escalation."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0019_approvals.sql").read_text())
