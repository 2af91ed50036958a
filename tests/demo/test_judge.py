"""The judge says what is false, and nothing else."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from app.agents.monthly_report import monthly_report
from app.demo.judge import (
    ActionFacts,
    ArtifactFacts,
    CallFacts,
    Facts,
    KillFacts,
    MailFacts,
    RunFacts,
    World,
    duplicate_effects,
    false_claims,
    judge,
    lost_results,
)
from app.demo.worlds.mailbox import Mail, Submission
from app.demo.worlds.publishing import PublicationRow, Request, publications, requests
from steps import Absent
from tests.kit import Site
from transactions.actions import EffectLimits

BODY = "In 2013-08 there were 1,005 flights, 3 cancelled, 20 departed and 30 arrived late."
SHA256 = hashlib.sha256(BODY.encode()).hexdigest()
CSV = (
    "date,flights,cancelled,delayed_departures,late_arrivals\n"
    "2013-07-31,9,9,9,9\n2013-08-01,1000,1,20,10\n2013-08-31,5,2,0,20\n"
)
PUBLISH = ActionFacts("r/5/0:publish_report", "publish_report", "effect", "SUCCEEDED", 1, 0)
TELL = ActionFacts("r/5/1:tell_team", "tell_team", "transaction", "SUCCEEDED", 1, 0)
RUN = RunFacts(
    run_id="r",
    month="2013-08",
    state="completed",
    calls=[CallFacts("c1", "publish_report", 1), CallFacts("c2", "tell_team", 1)],
    actions=[PUBLISH, TELL],
    edited=[],
    mails=[MailFacts("r/5/1:tell_team#mail:0", "delivered", "<m@x>")],
    artifacts=[ArtifactFacts("report", 1, SHA256)],
    approved_sha256=[SHA256],
    figures={"flights": 1005, "cancelled": 3, "delayed_departures": 20, "late_arrivals": 30},
    reused=1,
    verified=1,
    seen_before_approval=(0, 0),
)
KILL = KillFacts(11, "effect.after_send", -9, "r", datetime(2026, 1, 1, tzinfo=UTC), 12)


def publication(number: int, reference: str = PUBLISH.action_id, body: str = BODY) -> PublicationRow:
    return PublicationRow(number, reference, "Monthly report 2013-08", body, SHA256, 1.0)


def post(number: int, pid: int, reference: str = PUBLISH.action_id) -> Request:
    return Request(number, "POST", "/publications", reference, pid, 1.0)


def mail(number: int, message_id: str | None = "<m@x>") -> Mail:
    return Mail(number, message_id, "a@example.org", ("team@example.org",), (), "", 1.0)


WORLD = World(
    publications=[publication(1, "plain"), publication(2, "plain"), publication(3)],
    requests=[
        post(1, 1, "plain"),
        post(2, 2, "plain"),
        post(3, 11),
        Request(4, "GET", "/", PUBLISH.action_id, 12, 1.0),
    ],
    mails=[mail(1, "<p@plain-loop.example>"), mail(2)],
    submissions=[Submission(1, "<p@plain-loop.example>", 1.0), Submission(2, "<m@x>", 1.0)],
)
TRUE = Facts([RUN], [KILL], 1, WORLD, "plain", 1, [], CSV, 3)


def false(facts: Facts) -> list[str]:
    return [str(claim) for claim in judge(facts) if not claim.holds]


def test_nothing_is_false_of_true_facts() -> None:
    assert false(TRUE) == []
    assert (duplicate_effects(TRUE), lost_results(TRUE)) == (0, 0)


def of_run(**changes: Any) -> Facts:
    return replace(TRUE, runs=[replace(RUN, **changes)])


def of_world(**changes: Any) -> Facts:
    return replace(TRUE, world=replace(WORLD, **changes))


def of_kill(**changes: Any) -> Facts:
    return replace(TRUE, kills=[replace(KILL, **changes)])


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (of_run(state="held"), "the run is completed: FALSE, found held"),
        (of_run(calls=[]), "each call of the model has one answer: FALSE"),
        (of_run(calls=[CallFacts("c1", "publish_report", 0)]), "publish_report c1 has 0"),
        (of_run(calls=[CallFacts("c1", "publish_report", 2)]), "publish_report c1 has 2"),
        (of_run(actions=[TELL]), "one publication was asked for: FALSE"),
        (of_run(actions=[replace(PUBLISH, state="UNKNOWN"), TELL]), "r/5/0:publish_report is UNKNOWN"),
        (of_run(actions=[replace(PUBLISH, receipts=0), TELL]), "r/5/0:publish_report has 0, 0 contradicting"),
        (of_run(actions=[replace(PUBLISH, receipts=2, contradictions=1), TELL]), "has 2, 1 contradicting"),
        (
            of_run(artifacts=[ArtifactFacts("r", n, SHA256) for n in (1, 2)]),
            "a version was saved, and one for each edit: FALSE, found 2",
        ),
        (of_run(artifacts=[ArtifactFacts("r", 1, "0" * 64)]), "published is what was approved, byte for byte: FALSE"),
        (of_run(approved_sha256=[]), "published is what was approved, byte for byte: FALSE"),
        (of_run(seen_before_approval=(0, 1)), "before the approval nothing of it was in the world: FALSE"),
        (of_run(seen_before_approval=None), "before the approval nothing of it was in the world: FALSE"),
        (of_run(figures={**RUN.figures, "flights": 1}), "its figures are the sums of the file: FALSE"),
        (of_run(mails=[]), "one mail was asked for: FALSE"),
        (of_run(mails=[replace(RUN.mails[0], state="dead")]), "its mail is delivered: FALSE, found dead"),
        (of_run(verified=0), "the publication was verified, not sent again: FALSE"),
        (of_world(publications=WORLD.publications[:2]), "publish_report was done once: FALSE"),
        (of_world(publications=[*WORLD.publications, publication(4)]), "has 2 publications of r/5/0:publish_report"),
        (of_world(publications=[*WORLD.publications[:2], publication(3, body="x")]), "byte for byte: FALSE"),
        (of_world(publications=[*WORLD.publications[:2], publication(3, body="x")]), "missing: ['1,005'"),
        (of_world(publications=WORLD.publications[1:]), "the plain loop, killed once, published twice: FALSE, found 1"),
        (of_world(requests=[*WORLD.requests, post(5, 12)]), "2 requests for r/5/0:publish_report, from pids 11, 12"),
        (of_world(mails=WORLD.mails[:1]), "its mail is in the mailbox once: FALSE, found 0"),
        (of_world(mails=[*WORLD.mails, mail(3)]), "no mail is in the mailbox twice: FALSE, <m@x> 2 times"),
        (of_kill(wait_status=75), "each of them died by SIGKILL: FALSE, pid 11 ended with 75"),
        (of_kill(continued_by_pid=None), "after each of them another process went on: FALSE, nobody after pid 11"),
        (of_kill(continued_by_pid=11), "after each of them another process went on: FALSE, nobody after pid 11"),
        (replace(of_kill(failpoint="tool.transaction.after_commit"), runs=[replace(RUN, reused=0)]), "was found, not"),
        (replace(TRUE, kills_planned=3), "3 processes were killed while a run was unfinished: FALSE, found 1"),
        (replace(TRUE, business_rows=6), "the business rows are those of the file, each once: FALSE, found 6"),
        (replace(TRUE, unasked=["mail <z>"]), "nothing is in the world that nobody asked for: FALSE, mail <z>"),
        (replace(TRUE, plain_mails=2), "the plain loop sent one mail: FALSE"),
    ],
)
def test_what_is_false_is_named(facts: Facts, sentence: str) -> None:
    assert any(sentence in claim for claim in false(facts)), false(facts)


def test_duplicates_and_losses_are_counted() -> None:
    twice = [*WORLD.publications, publication(4), publication(5)]
    assert duplicate_effects(of_world(publications=twice, mails=[*WORLD.mails, mail(3)])) == 3
    lost = of_run(calls=[CallFacts("c1", "publish_report", 0)], actions=[replace(PUBLISH, receipts=0), TELL])
    assert lost_results(replace(lost, world=replace(WORLD, mails=[]))) == 3


def blinded() -> None:
    """In a worker: the verifier of the publication says that it is absent, whatever is there."""

    async def absent(action: object, artifact: str, version: int) -> Absent:
        return Absent()

    specs = dict(monthly_report.specs)
    specs["publish_report"] = replace(specs["publish_report"], verify=absent, limits=EffectLimits(attempt_s=1.0))
    object.__setattr__(monthly_report, "specs", MappingProxyType(specs))


def test_with_a_verifier_that_says_absent_it_publishes_twice_and_the_judge_says_so(site: Site) -> None:
    """The protection is real: without it, the service's own log has two requests for one action from two pids."""
    first, run_id = site.working("effect.after_send", broken=blinded), site.start()
    site.until_state(run_id, "waiting")
    site.approve(run_id)
    assert first.until_it_dies() == -9
    second = site.working(broken=blinded)
    site.until_state(run_id, "completed")
    site.until_quiet(run_id)
    rows = site.rows(
        "select action_id, tool, kind, state, count(receipt_id) as receipts, count(contradiction) as contradictions "
        "from surefoot.actions a left join surefoot.receipts using (action_id) where a.run_id = %s group by action_id",
        run_id,
    )
    world = site.world
    posts = world.publish_requests()
    assert {request.pid for request in posts} == {first.pid, second.pid}
    assert {request.reference for request in posts} == {f"{run_id}/5/0:publish_report"}
    said = false_claims(
        publications=publications(world.publishing_file),
        requests=requests(world.publishing_file),
        mails=world.mails(),
        actions=[ActionFacts(**row) for row in rows],
    )
    assert said == [
        f"publish_report was done once: FALSE, the publishing service has 2 publications of {posts[0].reference}",
        f"the publishing service was asked for publish_report once: FALSE, its log has 2 requests for "
        f"{posts[0].reference}, from pids {first.pid}, {second.pid}",
    ]
