"""Fill in of which key an open delivery is, apart from the locks of what comes before and after."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0007_heads.sql").read_text())
