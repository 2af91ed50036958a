"""What the API may is no worker's, what a worker may is not the API's, and neither owns anything."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0036_least_privilege.sql").read_text())
