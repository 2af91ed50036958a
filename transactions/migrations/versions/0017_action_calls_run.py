"""Find the calls of a run that go by a business key."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0017_action_calls_run.sql").read_text())
