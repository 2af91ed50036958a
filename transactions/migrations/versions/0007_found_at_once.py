"""Indexes for what loops look for at every round, apart from the changes before them, whose locks are stronger."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0007_found_at_once.sql").read_text())
