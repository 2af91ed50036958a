"""The head of a key, found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0008_heads_index.sql").read_text())
