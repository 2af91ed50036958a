"""The spine: runs, segments, ledger, outbox, workers, views and access."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    for part in ("spine", "views", "access"):
        run_script(op.get_bind(), folder.joinpath(f"0001_{part}.sql").read_text())
