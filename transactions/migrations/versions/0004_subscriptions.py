"""Who is subscribed to what, limits of a consumer over all workers, and the topics that runs tell their state on."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0004_subscriptions.sql").read_text())
