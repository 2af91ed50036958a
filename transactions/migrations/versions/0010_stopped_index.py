"""Effects that stopped for want of permission, found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0010_stopped_index.sql").read_text())
