"""Approvals that bind: asked anew when what would be done has changed, by several people, changed by one."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0018_approvals.sql").read_text())
