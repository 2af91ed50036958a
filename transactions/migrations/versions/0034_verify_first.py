"""What may have been done in what a restore has lost is looked for before it is sent."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0034_verify_first.sql").read_text())
