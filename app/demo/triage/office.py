"""The systems of the triage, started on a stage, and what they have in their own files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from app.demo.plain import MAIL_DOMAIN
from app.demo.stage import Stage
from app.demo.worlds import legacy_tracker, mailbox, pager, tickets, web

# By the middle of the variable that tells workers its URL.
SERVICES: Mapping[str, str] = MappingProxyType(
    {"TICKETS": "tickets", "TRACKER": "legacy_tracker", "PAGER": "pager", "SMTP": "mailbox"}
)


@dataclass(frozen=True, slots=True)
class Outside:
    """What there is of one run, or of one plain loop: oldest first.

    asked: the key or reference of every POST that bears its id; submissions: Message-IDs that reached the mailbox.
    """

    tickets: Sequence[tickets.Ticket]
    issues: Sequence[legacy_tracker.Issue]
    pages: Sequence[pager.Page]
    mails: Sequence[mailbox.Mail]
    asked: Sequence[str]
    submissions: Sequence[str]


def open_office(stage: Stage) -> None:
    """Start the ticket desk, the older tracker, the pager and the mailbox."""
    stage.open_world({variable: (name, _file(stage, name)) for variable, name in SERVICES.items()})


def outside(stage: Stage, run_id: str, *, plain: bool = False) -> Outside:
    """What the services have of a run, in whose id all that it made begins; its mails by their Message-IDs' domain."""
    begins = f"{run_id}/"
    asked = [one.reference for name in ("tickets", "legacy_tracker") for one in web.requests(_file(stage, name))]
    submitted = [one.message_id or "" for one in mailbox.submissions(_file(stage, "mailbox"))]
    return Outside(
        tickets=[one for one in tickets.tickets(_file(stage, "tickets")) if (one.key or "").startswith(begins)],
        issues=[one for one in issues(stage) if one.reference.startswith(begins)],
        pages=[one for one in pager.pages(_file(stage, "pager")) if run_id in one.text],
        mails=[one for one in mailbox.mails(_file(stage, "mailbox")) if _of_loop(one.message_id) == plain],
        asked=[reference for reference in asked if reference is not None and reference.startswith(begins)],
        submissions=[message_id for message_id in submitted if _of_loop(message_id) == plain],
    )


def issues(stage: Stage) -> list[legacy_tracker.Issue]:
    """Every issue of the older tracker."""
    return legacy_tracker.issues(_file(stage, "legacy_tracker"))


def in_all(stage: Stage) -> int:
    """How many tickets, issues, pages and mails there are, whoever asked for them."""
    kept = (
        tickets.tickets(_file(stage, "tickets")),
        issues(stage),
        pager.pages(_file(stage, "pager")),
        mailbox.mails(_file(stage, "mailbox")),
    )
    return sum(len(things) for things in kept)


def _of_loop(message_id: str | None) -> bool:
    return (message_id or "").endswith(f"@{MAIL_DOMAIN}>")


def _file(stage: Stage, name: str) -> Path:
    return stage.folder / f"{name}.sqlite"
