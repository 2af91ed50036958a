"""What waits, what is delayed, what runs, and what a rate limit counts, each found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_apart

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    script = files("transactions").joinpath("migrations", "versions", "0028_queue_indexes.sql").read_text()
    run_apart(op.get_bind(), [part for part in script.split(";\n") if part.strip()])
