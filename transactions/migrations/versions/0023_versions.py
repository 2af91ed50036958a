"""Application versions: which one is current, what each serves and can read, and workers that drain."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0023_versions.sql").read_text())
