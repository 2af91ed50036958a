"""Why a run that is queued is queued, and how much of what waits."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0029_queue_views.sql").read_text())
