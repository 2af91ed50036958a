"""Business keys: which action a call means, and who waits for another run's. Undoing: which effect an action undoes."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0005_keys_and_undo.sql").read_text())
