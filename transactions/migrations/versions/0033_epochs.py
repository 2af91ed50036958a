"""An epoch begins when the database is found to be another one, and a run belongs to one; the roles of the API."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0033_epochs.sql").read_text())
