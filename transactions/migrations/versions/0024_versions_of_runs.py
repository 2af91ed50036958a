"""The version a run goes on with, holding and moving one, and what is seen of it."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0024_versions_of_runs.sql").read_text())
