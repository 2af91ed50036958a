"""Transitions of a run that the database enforces, the time in each state, phases, and limits of an agent's runs."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0012_lifecycle.sql").read_text())
