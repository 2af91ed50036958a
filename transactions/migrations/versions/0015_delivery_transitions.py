"""Transitions of a delivery that the database enforces."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0015_delivery_transitions.sql").read_text())
