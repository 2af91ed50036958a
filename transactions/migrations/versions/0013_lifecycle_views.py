"""What people see of a run's phase and times, and which runs are stuck."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0013_lifecycle_views.sql").read_text())
