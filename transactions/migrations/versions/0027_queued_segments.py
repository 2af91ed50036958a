"""A segment waits for its turn in our own table, and is handed to the engine once it is admitted."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0027_queued_segments.sql").read_text())
