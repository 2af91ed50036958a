"""What nobody is at and nobody will take up by itself: a view that is empty while failover does its work."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0037_stranded.sql").read_text())
