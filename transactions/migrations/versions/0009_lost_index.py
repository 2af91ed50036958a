"""Segments that the engine lost, found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0009_lost_index.sql").read_text())
