"""Limits, turns and room of the queue, schedules; the priority of a run, the slots of a worker."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_briefly

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_briefly(op.get_bind(), folder.joinpath("0026_queues.sql").read_text())
