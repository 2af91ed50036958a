"""The outbox for people: which consumers a worker has, and views that say what is stuck, why and what to do."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0003_outbox_desk.sql").read_text())
