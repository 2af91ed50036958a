"""Find the calls of a run that go by a business key."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0016_action_calls_run.sql").read_text())
