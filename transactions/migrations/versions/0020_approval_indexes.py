"""Finding approvals by their action, and what each person said of those there were."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0020_approval_indexes.sql").read_text())
