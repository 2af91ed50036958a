"""A person's change of what an action does is an action of its own."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0018_action_revisions.sql").read_text())
