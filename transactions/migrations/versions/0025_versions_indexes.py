"""Runs that are held until a version lives that can read them, found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_apart

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    script = files("transactions").joinpath("migrations", "versions", "0025_versions_indexes.sql").read_text()
    run_apart(op.get_bind(), [part for part in script.split(";\n") if part.strip()])
