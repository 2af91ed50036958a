"""Artifacts whose bytes are in a store outside, what is staged there before it is referenced, and large results."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0021_artifacts.sql").read_text())
