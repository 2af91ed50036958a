"""What is taken away from a relay's process before it starts, so that the judge must find something."""

from sqlalchemy import text

from transactions import outbox
from transactions.statements import load


def no_order() -> None:
    """Whatever is due is claimed, the youngest first, whether or not another of its key comes before it."""
    statements = dict(load("outbox"))
    checked = statements["claim_due_with_skip_locked"].text
    spoilt = checked.replace("d.of_seq is null or", "true or")
    assert spoilt != checked
    spoilt = spoilt.replace("order by d.due_at limit", "order by d.due_at desc limit")
    setattr(outbox, "_OUTBOX", {**statements, "claim_due_with_skip_locked": text(spoilt)})  # noqa: B010  its own process
