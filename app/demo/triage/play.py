"""The triage on stage: a plain loop killed twice, then Surefoot killed after each system has done what it was asked."""

import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.agents.ticket_triage.request import EXAMPLE
from app.demo import story, timeline
from app.demo.facts import action_facts, kill_facts
from app.demo.house import House, clear, open_house
from app.demo.judge import KillFacts
from app.demo.kills import Kill
from app.demo.options import check_writable
from app.demo.records import KEY_PREFIX
from app.demo.scene import READY, call_api, until_state
from app.demo.stage import Child, DemoFailed, Stage, until
from app.demo.triage.found import Facts, as_json, judge, table
from app.demo.triage.office import in_all, issues, open_office, outside
from steps.clock import SystemClock

KILLS = 4
_SENT = "effect.after_send"
_MAILED = "mail.after_send"
_PLAIN = "demo.triage.plain"
LEAD, OPERATOR = "ada@demo", "eve@demo"
_PENDING = "select approval_id from surefoot.approvals where run_id = :r and state = 'pending'"
_UNKNOWN = """
select action_id, waits_for, why from surefoot.unknown_actions where run_id = :r and waits_for = 'person'"""
_SAID = """
select a.tool, d.outcome, d.decided_by as by from surefoot.decisions d join surefoot.actions a using (action_id)
 where a.run_id = :r"""
_SEVERITIES = "select customer, severity from ticket_triage.triage where run_id = :r"


@dataclass(slots=True)
class _Act:
    """One run of the agent on stage, and its kills so far."""

    house: House
    stage: Stage
    say: story.Teller
    name: str = field(default_factory=lambda: KEY_PREFIX + SystemClock().new_id()[:12])
    run_id: str = ""
    kills: list[Kill] = field(default_factory=list[Kill])
    issues_before: int = 0

    def worker(self, failpoint: str | None, *, mail: bool = False) -> Child:
        """Start one. Without `mail` it has no mail server, and mails wait for one that has."""
        worker = self.stage.worker(failpoint, **({} if mail else {"SUREFOOT_SMTP_URL": ""}))
        worker.until_said(READY)
        return worker

    def start(self, worker: Child) -> None:
        body = {"agent": "ticket_triage", "input": EXAMPLE.model_dump(mode="json")}
        answer = call_api(worker, "POST", "/runs", body, {"Idempotency-Key": self.name, **self.house.records.headers})
        run_id = self.house.records.run_of_key(self.name) if answer is None else answer["run_id"]
        if run_id is None:
            raise DemoFailed(f"The demo stopped: the run could not be started: {worker.last_words()}")
        self.run_id = run_id
        self.say(f"run {run_id} started through the API of worker pid {worker.pid}")

    def agree(self) -> None:
        """Approve what the run asks a lead for now, once it does."""
        records = self.house.records
        approval_id = until("a lead is asked", lambda: records.value(_PENDING, r=self.run_id))
        records.approve(approval_id, by=LEAD, role="lead")
        self.say(f"approved as {LEAD}, in the role of lead: {approval_id}")

    def killed(self, worker: Child, what: str) -> None:
        """Wait until its failpoint has killed the worker."""
        status = worker.until_dead()
        point = self.stage.struck(worker)
        if point is None:
            raise DemoFailed(f"The demo stopped: {worker.name} ended without a kill: {worker.last_words()}")
        self.kills.append(Kill(worker.pid, point, status, self.run_id, self.house.records.now()))
        self.say(f"pid {worker.pid} was killed (SIGKILL) at {point}: {what}")

    def settle(self) -> None:
        """Do as an operator would: see what is on the desk, look into the pager's own record, and say it."""
        row = until(
            "the page is on the desk",
            lambda: next(iter(self.house.records.rows(_UNKNOWN, r=self.run_id)), None),
        )
        self.say(f"on the desk: {row['action_id']} ({row['why']})")
        [page] = outside(self.stage, self.run_id).pages
        why = "the pager's record has it"
        self.house.records.settle(row["action_id"], by=OPERATOR, result=page.id, reason=why)
        self.say(f"{OPERATOR} has looked: page {page.id} went out, so she says that it succeeded")


def play(file: Path | None) -> bool:
    """Perform, print, write the facts to `file`. True when every claim holds. Raises as `app.demo.demo.play`."""
    if file is not None:
        check_writable(file)
    say = story.Teller(began := time.monotonic())
    with open_house() as house:
        print(f"{len(EXAMPLE.reports)} reports of customers: tickets opened, escalated, paged and answered, each once.")
        story.place(house.embedded, house.folder)
        with Stage(house.folder, house.url) as stage:
            open_office(stage)
            clear(stage, house.records, say)
            act = _Act(house, stage, say)
            say.heading("A plain pydantic-ai loop, killed after the ticket desk and after the tracker had committed")
            _plain_loop(act)
            say.heading("The same agent on Surefoot")
            _four_kills(act)
            facts = _collect(act)
        claims = judge(facts)
        written = as_json(facts, claims, seconds=time.monotonic() - began)
        _tell(act, facts.kills)
        story.table(lines := table(facts))
        story.about_mail(lines[-1])
        say.claims(claims, "the ticket desk, the tracker, the pager, the mailbox and the database")
        print(f"It took {written['seconds']} s.")
        story.about_sql([act.run_id])
    if file is not None:
        file.write_text(json.dumps(written, indent=2) + "\n")
    return all(claim.holds for claim in claims)


def _plain_loop(act: _Act) -> None:
    """Killed after its first ticket; again after its first issue, which is the fourth thing that it has then sent."""
    arguments = ["--reference", act.name]
    for passage, what in ((1, "the ticket desk"), (4, "the tracker")):
        loop = act.stage.plain_loop(arguments, f"{_SENT}:{passage}", module=_PLAIN)
        if loop.until_dead() != -signal.SIGKILL:
            raise DemoFailed(f"The demo stopped: {loop.name} was not killed: {loop.last_words()}")
        act.say(f"pid {loop.pid} was killed (SIGKILL) right after {what} had committed; starting it again")
    last = act.stage.plain_loop(arguments, module=_PLAIN)
    if last.until_dead() != 0:
        raise DemoFailed(f"The demo stopped: {last.name} failed: {last.last_words()}")
    made = outside(act.stage, act.name, plain=True)
    act.say(f"pid {last.pid} finished: there are {len(made.tickets)} tickets and {len(made.issues)} issues")


def _four_kills(act: _Act) -> None:
    """Each kill falls between the answer of a system and its receipt, each system being safe in another way."""
    first = act.worker(_SENT)
    act.start(first)
    act.killed(first, "the ticket desk had opened a ticket, and the answer was not recorded yet")
    second = act.worker(f"{_SENT}:{len(EXAMPLE.reports) + 1}")  # the tickets, the first of them again, and an issue
    until_state(act.house.records, act.run_id, "waiting")
    act.say(f"pid {second.pid} sent the same key again and got the same ticket; the run waits for a lead")
    act.issues_before = sum(issue.reference.startswith(act.run_id) for issue in issues(act.stage))
    act.agree()
    act.killed(second, "the tracker, which knows no keys, had made an issue")
    third = act.worker(f"{_SENT}:2")  # the other issue, and the page
    act.agree()
    act.killed(third, "the pager, which can be asked nothing, had paged those on call")
    fourth = act.worker(_MAILED, mail=True)
    act.killed(fourth, "the mail server had taken a mail, and it was not recorded yet")
    last = act.worker(None, mail=True)
    act.settle()
    until_state(act.house.records, act.run_id, "completed")
    until(f"everything of run {act.run_id} is delivered", lambda: act.house.records.is_inert(act.run_id))
    last.stop()
    act.say(f"pid {last.pid} went on and finished the run")


def _collect(act: _Act) -> Facts:
    records = act.house.records
    return Facts(
        run_id=act.run_id,
        state=records.state(act.run_id),
        actions=action_facts(records, act.run_id),
        severities={row["customer"]: row["severity"] for row in records.rows(_SEVERITIES, r=act.run_id)},
        said=records.rows(_SAID, r=act.run_id),
        kills=[kill_facts(records, kill) for kill in act.kills],
        kills_planned=KILLS,
        run=outside(act.stage, act.run_id),
        plain=outside(act.stage, act.name, plain=True),
        issues_before=act.issues_before,
        in_all=in_all(act.stage),
    )


def _tell(act: _Act, kills: Sequence[KillFacts]) -> None:
    act.say.heading(f"What happened to run {act.run_id} (from surefoot.run_timeline)")
    rows = act.house.records.rows(timeline.SQL, run_id=act.run_id)
    for line in timeline.in_words(rows, kills, mailed="a customer"):
        print(line)
