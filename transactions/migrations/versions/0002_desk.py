"""The operator's desk: what people say of effects whose outcome is unknown, and what contradicts a settled one."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0002_desk.sql").read_text())
