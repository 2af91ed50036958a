"""An object is referenced once, a result kept once; the artifacts of a run, an action or a call are found at once."""

from importlib.resources import files

from alembic import op

from transactions.statements import run_script

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    folder = files("transactions").joinpath("migrations", "versions")
    run_script(op.get_bind(), folder.joinpath("0022_artifact_indexes.sql").read_text())
