"""What waits, what is delayed, what runs, and what a rate limit counts, each found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0028_queue_indexes.sql").read_text())
