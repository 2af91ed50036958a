"""Transitions of an action that the database enforces."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0014_action_transitions.sql").read_text())
