"""Policies of retention, what it has done, and the role that may remove."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0030_retention.sql").read_text())
