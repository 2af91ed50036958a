"""Classes of failure, limits of elapsed time and of verdicts, and what stopped for want of permission on the desk."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0006_failures.sql").read_text())
