"""The API claims no delivery."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0035_api_claims_nothing.sql").read_text())
