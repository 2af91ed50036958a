"""Runs that are held until a version lives that can read them, found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0025_versions_indexes.sql").read_text())
