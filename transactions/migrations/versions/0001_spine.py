"""The spine: runs, segments, ledger, outbox, workers, views and access."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    for part in ("spine", "views", "access"):
        run_script(op.get_bind(), files("transactions").joinpath("migrations", "versions", f"0001_{part}.sql").read_text())
