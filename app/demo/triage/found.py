"""Is what this demo says true? What the services' files and the database say; the claims; the JSON facts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.agents.ticket_triage.request import EXAMPLE
from app.agents.ticket_triage.tools import ESCALATED
from app.demo.judge import ActionFacts, Claim, KillFacts
from app.demo.summary import Line
from app.demo.triage.office import Outside

CUSTOMERS = tuple(sorted(report.customer for report in EXAMPLE.reports))
GRAVE = 2  # reports of the example that are high or critical
PAGED = 1  # that are critical
PLAIN_KILLS = 2


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the verdict rests on. `severities`: as saved, by customer. `said`: what people said of effects.

    issues_before: of the run, just before a lead first agreed. in_all: things in the world, whoever asked for them.
    """

    run_id: str
    state: str
    actions: Sequence[ActionFacts]
    severities: Mapping[str, str]
    said: Sequence[Mapping[str, Any]]
    kills: Sequence[KillFacts]
    kills_planned: int
    run: Outside
    plain: Outside
    issues_before: int
    in_all: int

    def done(self, tool: str) -> list[str]:
        """The ids of the actions of a tool that succeeded."""
        return [one.action_id for one in self.actions if one.tool == tool and one.state == "SUCCEEDED"]


def judge(facts: Facts) -> list[Claim]:
    """Every claim, true or false."""
    return [*_plain_loop(facts), *_kills(facts), *_run(facts), *_ledger(facts)]


def _plain_loop(facts: Facts) -> Iterator[Claim]:
    tickets, issues = len(facts.plain.tickets), len(facts.plain.issues)
    found = f"it opened {tickets} tickets"
    yield Claim("the plain loop, killed twice, opened tickets twice and thrice", tickets > len(CUSTOMERS), found)
    mails = len(facts.plain.mails)
    yield Claim("the plain loop answered customers again", mails > len(CUSTOMERS), f"it sent {mails} mails")
    yield Claim("the plain loop escalated one report twice", issues == GRAVE + 1, f"it made {issues} issues")


def _kills(facts: Facts) -> Iterator[Claim]:
    yield _equal(f"{facts.kills_planned} workers were killed", len(facts.kills), facts.kills_planned)
    yield _equal("each of them died by SIGKILL", {kill.wait_status for kill in facts.kills}, {-9})
    left = [f"nobody after pid {kill.pid}" for kill in facts.kills if kill.continued_by_pid in (None, kill.pid)]
    yield Claim("after each of them another process went on", not left, "; ".join(left))


def _run(facts: Facts) -> Iterator[Claim]:
    run = facts.run
    asked = Counter(run.asked)
    yield _equal("the run is completed", facts.state, "completed")
    yield _equal("each report has one ticket", sorted(ticket.customer for ticket in run.tickets), [*CUSTOMERS])
    opened = facts.done("open_ticket")
    yield _equal("each ticket bears the key of what was asked for", [ticket.key for ticket in run.tickets], opened)
    yield _equal("the first was sent twice, under the same key", [asked[key] for key in opened], [2, 1, 1])
    escalated = facts.done("escalate")
    yield _equal("what is high or critical was escalated", len(escalated), GRAVE)
    yield _equal("there is one issue for each", [issue.reference for issue in run.issues], escalated)
    # One POST and one GET: what the worker sent that died, and the search of the one that went on.
    yield _equal("the tracker was asked, not told again", [asked[one] for one in escalated], [2, 1])
    agreed = {issue.customer: issue.severity for issue in run.issues}
    grave = {customer: word for customer, word in facts.severities.items() if word in ESCALATED}
    yield _equal("they say what a lead has agreed to", agreed, grave)
    yield _equal("before a lead agreed there was none", facts.issues_before, 0)
    yield _equal("one page went out", len(run.pages), PAGED)
    said = [(row["tool"], row["outcome"], row["by"]) for row in facts.said]
    yield _equal("what became of it was said by a person", said, [("page", "succeeded", "eve@demo")])
    mailed = sorted(address for mail in run.mails for address in mail.recipients)
    yield _equal("each customer has one mail", mailed, [*CUSTOMERS])
    mine = sum(len(things) for side in (run, facts.plain) for things in _things(side))
    yield _equal("nothing is in the world that nobody asked for", facts.in_all, mine)


def _ledger(facts: Facts) -> Iterator[Claim]:
    odd = [
        f"{one.action_id} is {one.state} with {one.receipts} receipts, {one.contradictions} contradicting"
        for one in facts.actions
        if one.contradictions or one.receipts != (one.state == "SUCCEEDED")
    ]
    yield Claim("each action that succeeded has one receipt and none that contradicts", not odd, "; ".join(odd))
    refused = [one.tool for one in facts.actions if one.state == "FAILED"]
    yield _equal("what the desk refused was corrected by the model, once", refused, ["open_ticket"])


def table(facts: Facts) -> tuple[Line, ...]:
    """How often each effect was asked for and sent, and how many there are."""
    run, plain = facts.run, facts.plain
    done = facts.done("open_ticket")
    kept = {ticket.key for ticket in plain.tickets}
    return (
        Line(
            "open a ticket",
            asked=len(CUSTOMERS),
            plain_sent=sum(key in kept for key in plain.asked),
            plain_in_the_world=len(plain.tickets),
            sent=sum(run.asked.count(key) for key in done),
            in_the_world=len(run.tickets),
        ),
        # Each accepted request is one more of these, so what there is was sent.
        Line("escalate", GRAVE, len(plain.issues), len(plain.issues), len(run.issues), len(run.issues)),
        Line("page", PAGED, len(plain.pages), len(plain.pages), len(run.pages), len(run.pages)),
        Line(
            "mail the customer",
            asked=len(CUSTOMERS),
            plain_sent=len(plain.submissions),
            plain_in_the_world=len(plain.mails),
            sent=len(run.submissions),
            in_the_world=len(run.mails),
        ),
    )


def as_json(facts: Facts, claims: Sequence[Claim], *, seconds: float) -> dict[str, Any]:
    """What `--json` writes; the counts without `plain_` are those of the run on Surefoot."""
    lines = table(facts)
    counts = {name: len(things) for name, things in zip(_NAMES, _things(facts.run), strict=True)}
    plain = {f"plain_{name}": len(things) for name, things in zip(_NAMES, _things(facts.plain), strict=True)}
    return {
        "agent": "ticket_triage",
        "run_status": facts.state,
        "run_ids": [facts.run_id],
        "kills": [
            {
                "pid": kill.pid,
                "failpoint": kill.failpoint,
                "wait_status": kill.wait_status,
                "continued_by_pid": kill.continued_by_pid,
                "run_id": kill.run_id,
            }
            for kill in facts.kills
        ],
        **counts,
        **plain,
        "duplicate_effects": sum(max(0, line.in_the_world - line.asked) for line in lines),
        "lost_results": sum(max(0, line.asked - line.in_the_world) for line in lines),
        "seconds": round(seconds, 1),
        "table": [asdict(line) for line in lines],
        "claims": [claim.says for claim in claims if claim.holds],
        "false_claims": [str(claim) for claim in claims if not claim.holds],
    }


_NAMES = ("tickets", "issues", "pages", "mails")


def _things(side: Outside) -> tuple[Sequence[object], ...]:
    return side.tickets, side.issues, side.pages, side.mails


def _equal(says: str, found: object, expected: object) -> Claim:
    return Claim(says, found == expected, f"found {found}, expected {expected}")
