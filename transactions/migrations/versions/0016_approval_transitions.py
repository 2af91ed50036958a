"""Transitions of an approval that the database enforces."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0016_approval_transitions.sql").read_text())
