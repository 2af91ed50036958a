"""`surefoot demo --agent ticket_triage`: real services and kills, its facts looked up again here; and its judge."""

import re
import signal
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.demo.judge import ActionFacts, KillFacts
from app.demo.triage.found import CUSTOMERS, Facts, as_json, judge
from app.demo.triage.office import Outside
from app.demo.worlds.legacy_tracker import Issue, issues
from app.demo.worlds.mailbox import Mail, mails
from app.demo.worlds.pager import Page, pages
from app.demo.worlds.tickets import Ticket, tickets
from tests.demo.performance import perform
from tests.forked import surefoot

RUN, LOOP = "run-1", "demo-1"


def test_four_kills_and_everything_once(tmp_path: Path, database_url: str) -> None:
    demo = perform(tmp_path / "home", "--agent", "ticket_triage", database_url=database_url)
    facts = demo.facts()
    [run_id] = facts["run_ids"]
    [folder] = (demo.home / "demo").glob("2*")
    opened = [ticket for ticket in tickets(folder / "tickets.sqlite") if str(ticket.key).startswith(run_id)]
    assert sorted(ticket.customer for ticket in opened) == [*CUSTOMERS]
    made = [issue.reference for issue in issues(folder / "legacy_tracker.sqlite") if issue.reference.startswith(run_id)]
    assert len(made) == len({*made}) == facts["issues"] == 2
    assert sum(run_id in page.text for page in pages(folder / "pager.sqlite")) == facts["pages"] == 1
    kept = [mail for mail in mails(folder / "mailbox.sqlite") if "plain-loop" not in str(mail.message_id)]
    assert Counter(mail.recipients[0] for mail in kept) == Counter(CUSTOMERS)
    assert (facts["tickets"], facts["mails"], facts["duplicate_effects"], facts["lost_results"]) == (3, 3, 0, 0)
    assert (facts["plain_tickets"], facts["plain_issues"], facts["plain_mails"]) == (7, 3, 9)
    assert (facts["run_status"], facts["false_claims"]) == ("completed", [])
    assert [kill["failpoint"] for kill in facts["kills"]] == ["effect.after_send"] * 3 + ["mail.after_send"]
    assert {kill["wait_status"] for kill in facts["kills"]} == {-signal.SIGKILL}
    assert len({kill["pid"] for kill in facts["kills"]}) == 4
    said = demo.said()
    assert re.search(r"^open a ticket +\| +3 \| +7 \| +7 \| +4 \| +3$", said, re.MULTILINE)
    assert "known from a person to have happened: page" in said
    assert "a server that does not honour it would show a repeat" in said


@pytest.mark.parametrize("given", [["--hold"], ["--kills", "3"], ["--seed", "1"], ["--month", "2013-07"]])
def test_it_has_a_story_of_its_own(given: list[str]) -> None:
    ended = surefoot("demo", "--agent", "ticket_triage", *given)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "surefoot: --agent ticket_triage has a story and reports of its own: give it nothing but --json.\n"
    )


def outside(begin: str, *, opened: int, issues: int) -> Outside:
    """What a loop or a run has made: `opened` tickets, each asked for once, the customers in turn."""
    keys = [f"{begin}/{n}:open_ticket" for n in range(opened)]
    references = [f"{begin}/{n}:escalate" for n in range(issues)]
    ids = [f"<{begin}-{n}@example.org>" for n in range(opened)]
    return Outside(
        tickets=[Ticket(n, key, CUSTOMERS[n % 3], "s", 0.0) for n, key in enumerate(keys)],
        issues=[Issue(n, reference, CUSTOMERS[n % 2], "high", "s", 0.0) for n, reference in enumerate(references)],
        pages=[Page(1, "on-call", f"of {begin}", 0.0)],
        mails=[Mail(n, id, "s", (CUSTOMERS[n % 3],), (), "b", 0.0) for n, id in enumerate(ids)],
        asked=[*keys, *references],
        submissions=ids,
    )


def sound() -> Facts:
    run = outside(RUN, opened=3, issues=2)
    actions = [ActionFacts(f"{RUN}/{n}:open_ticket", "open_ticket", "effect", "SUCCEEDED", 1, 0) for n in range(3)]
    actions += [ActionFacts(f"{RUN}/9:open_ticket", "open_ticket", "effect", "FAILED", 0, 0)]
    actions += [ActionFacts(f"{RUN}/{n}:escalate", "escalate", "effect", "SUCCEEDED", 1, 0) for n in range(2)]
    actions += [ActionFacts(f"{RUN}/0:page", "page", "effect", "SUCCEEDED", 1, 0)]
    killed = [KillFacts(n, "effect.after_send", -9, RUN, datetime.now(UTC), n + 1) for n in range(4)]
    return Facts(
        run_id=RUN,
        state="completed",
        actions=actions,
        severities=dict(zip(CUSTOMERS, ("high", "high", "low"), strict=True)),
        said=[{"tool": "page", "outcome": "succeeded", "by": "eve@demo"}],
        kills=killed,
        kills_planned=4,
        run=replace(run, asked=[*run.asked, run.asked[0], run.asked[3]]),  # the first again; searched for
        plain=outside(LOOP, opened=7, issues=3),
        issues_before=0,
        in_all=3 + 2 + 1 + 3 + 7 + 3 + 1 + 7,
    )


def test_the_judge_finds_nothing_in_what_is_sound() -> None:
    facts = sound()
    assert [str(claim) for claim in judge(facts) if not claim.holds] == []
    told = as_json(facts, judge(facts), seconds=1.0)
    assert (told["tickets"], told["plain_tickets"], told["duplicate_effects"], told["lost_results"]) == (3, 7, 0, 0)


def more(things: Any, *others: Any) -> list[Any]:
    return [*things, *others]


@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        (lambda f: replace(f, state="failed"), "the run is completed"),
        (lambda f: replace(f, kills=f.kills[:3]), "4 workers were killed"),
        (
            lambda f: replace(f, kills=[replace(f.kills[0], wait_status=1), *f.kills[1:]]),
            "each of them died by SIGKILL",
        ),
        (lambda f: replace(f, plain=outside(LOOP, opened=3, issues=3)), "the plain loop, killed twice, opened tickets"),
        (
            lambda f: replace(f, run=replace(f.run, tickets=more(f.run.tickets, f.run.tickets[0]))),
            "each report has one ticket",
        ),
        (
            lambda f: replace(f, run=replace(f.run, tickets=[replace(f.run.tickets[0], key="k"), *f.run.tickets[1:]])),
            "each ticket bears the key",
        ),
        (
            lambda f: replace(f, run=replace(f.run, issues=more(f.run.issues, f.run.issues[0]))),
            "there is one issue for each",
        ),
        (
            lambda f: replace(f, run=replace(f.run, asked=more(f.run.asked, f.run.issues[0].reference))),
            "the tracker was asked, not told again",
        ),
        (
            lambda f: replace(f, severities={**f.severities, CUSTOMERS[0]: "critical"}),
            "they say what a lead has agreed",
        ),
        (lambda f: replace(f, issues_before=1), "before a lead agreed there was none"),
        (lambda f: replace(f, run=replace(f.run, pages=[])), "one page went out"),
        (lambda f: replace(f, said=[]), "what became of it was said by a person"),
        (lambda f: replace(f, run=replace(f.run, mails=f.run.mails[:2])), "each customer has one mail"),
        (lambda f: replace(f, in_all=f.in_all + 1), "nothing is in the world that nobody asked for"),
        (
            lambda f: replace(f, actions=[replace(f.actions[0], receipts=2), *f.actions[1:]]),
            "each action that succeeded has one receipt",
        ),
    ],
)
def test_the_judge_sees_what_is_wrong(wrong: Any, claim: str) -> None:
    false = [one.says for one in judge(wrong(sound())) if not one.holds]
    assert any(says.startswith(claim) for says in false), false
