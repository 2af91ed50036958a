"""Collects what the judge judges: rows of the database, files of the outside world, the file that was reported on."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from app.demo.judge import (
    FIGURES,
    ActionFacts,
    ArtifactFacts,
    CallFacts,
    Facts,
    KillFacts,
    MailFacts,
    RunFacts,
    World,
)
from app.demo.kills import Kill
from app.demo.plain import MAIL_DOMAIN
from app.demo.records import Records
from app.demo.scene import RunOnStage, Scene
from app.demo.stage import Stage
from app.demo.worlds import mailbox, publishing

_ACTIONS = """
select a.action_id, a.tool, a.kind, a.state, count(r.receipt_id) as receipts, count(r.contradiction) as contradictions
  from surefoot.actions a left join surefoot.receipts r using (action_id)
 where a.run_id = :run_id and a.revised_to is null group by a.action_id order by a.turn, a.position"""
_EDITED = "select action_id from surefoot.actions where run_id = :run_id and revised_to is not null"
_MAILS = """
select e.entry_id, d.state, d.receipt ->> 'message_id' as message_id
  from surefoot.outbox_entries e join surefoot.outbox_deliveries d using (entry_id)
 where e.run_id = :run_id and e.topic = 'mail' order by e.entry_id"""
_PARTS = """
select p ->> 'part_kind' as part, p ->> 'tool_call_id' as call_id, p ->> 'tool_name' as tool, p -> 'content' as content
  from surefoot.model_messages m, jsonb_array_elements(m.message -> 'parts') with ordinality as parts (p, n)
 where m.run_id = :run_id and p ->> 'tool_call_id' is not null order by m.seq, n"""
_ARTIFACTS = """
select name, version, encode(sha256(content), 'hex') as sha256 from surefoot.artifacts where run_id = :run_id
 order by version"""
_APPROVED = """
select binding ->> 'sha256' as sha256 from surefoot.approvals where run_id = :run_id and state = 'approved'"""
_REUSED = "select count(*) from surefoot.steps where run_id = :run_id and how = 'reused'"
_VERIFIED = """
select count(*) from surefoot.receipts r join surefoot.actions a using (action_id)
 where a.run_id = :run_id and r.source = 'verification'
   and not exists (select 1 from surefoot.receipts e where e.action_id = r.action_id and e.receipt_id < r.receipt_id)"""
_ROWS = "select count(*) from monthly_report.daily_figures where data_set = :data_set"
# Who did something for the run, by the database's clock: the facts it numbered and the deliveries it settled.
_DOINGS = """
select w.pid from (
    select worker_id, at from surefoot.events where run_id = :run_id and worker_id is not null
    union all
    select d.worker_id, d.settled_at from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
     where e.run_id = :run_id and d.settled_at is not null) as doing
  join surefoot.workers w using (worker_id)
 where doing.at > :at order by doing.at limit 1"""
_KNOWN_REFERENCES = "select action_id as known from surefoot.actions where action_id = any(:names)"
_KNOWN_MAILS = """
select receipt ->> 'message_id' as known from surefoot.outbox_deliveries
 where consumer = 'mail' and receipt ->> 'message_id' = any(:names)"""


def collect(scene: Scene, *, kills_planned: int) -> Facts:
    """Everything, as it is now."""
    world = _world(scene.stage)
    content = scene.input.file.read_bytes()
    plain = [mail for mail in world.mails if (mail.message_id or "").endswith(f"@{MAIL_DOMAIN}>")]
    return Facts(
        runs=[_run(scene.records, run) for run in scene.runs],
        kills=[kill_facts(scene.records, kill) for kill in scene.kills],
        kills_planned=kills_planned,
        world=world,
        plain_reference=scene.plain_reference,
        plain_mails=len(plain),
        unasked=_unasked(scene, world, {mail.message_id for mail in plain}),
        csv_text=content.decode("utf-8-sig"),
        business_rows=scene.records.value(_ROWS, data_set=hashlib.sha256(content).hexdigest()),
    )


def _world(stage: Stage) -> World:
    return World(
        publications=publishing.publications(stage.publishing_file),
        requests=publishing.requests(stage.publishing_file),
        mails=mailbox.mails(stage.mail_file),
        submissions=mailbox.submissions(stage.mail_file),
    )


def _run(records: Records, run: RunOnStage) -> RunFacts:
    parts = records.rows(_PARTS, run_id=run.run_id)
    return RunFacts(
        run_id=run.run_id,
        month=run.month,
        state=records.state(run.run_id),
        calls=_calls(parts),
        actions=action_facts(records, run.run_id),
        edited=[row["action_id"] for row in records.rows(_EDITED, run_id=run.run_id)],
        mails=[MailFacts(**row) for row in records.rows(_MAILS, run_id=run.run_id)],
        artifacts=[ArtifactFacts(**row) for row in records.rows(_ARTIFACTS, run_id=run.run_id)],
        approved_sha256=[row["sha256"] for row in records.rows(_APPROVED, run_id=run.run_id)],
        figures=_figures(parts),
        reused=records.value(_REUSED, run_id=run.run_id),
        verified=records.value(_VERIFIED, run_id=run.run_id),
        seen_before_approval=run.seen_before_approval,
    )


def action_facts(records: Records, run_id: str) -> list[ActionFacts]:
    """The run's rows of the ledger, in the order the model asked; but for what a person had changed, what it is now."""
    return [ActionFacts(**row) for row in records.rows(_ACTIONS, run_id=run_id)]


def _calls(parts: Sequence[Mapping[str, Any]]) -> list[CallFacts]:
    answered = [row["call_id"] for row in parts if row["part"] != "tool-call"]
    return [
        CallFacts(row["call_id"], row["tool"], answered.count(row["call_id"]))
        for row in parts
        if row["part"] == "tool-call"
    ]


def _figures(parts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The month's figures as the model was given them."""
    for row in parts:
        if row["part"] == "tool-return" and row["tool"] == "monthly_figures":
            return {name: row["content"]["month"][name] for name in FIGURES}
    return {}


def kill_facts(records: Records, kill: Kill) -> KillFacts:
    """A kill, and who went on."""
    next_pid = records.value(_DOINGS, run_id=kill.run_id, at=kill.at)
    return KillFacts(kill.pid, kill.failpoint, kill.wait_status, kill.run_id, kill.at, next_pid)


def _unasked(scene: Scene, world: World, plain_mails: set[str | None]) -> list[str]:
    """Publications and mails that neither the plain loop nor any run on this database accounts for."""
    references = {row.reference for row in world.publications} - {scene.plain_reference}
    mails = {mail.message_id or "a mail without Message-ID" for mail in world.mails} - plain_mails
    found = {f"publication {name}" for name in references - _known(scene.records, _KNOWN_REFERENCES, references)}
    return sorted(found | {f"mail {name}" for name in mails - _known(scene.records, _KNOWN_MAILS, mails)})


def _known(records: Records, sql: str, names: set[str]) -> set[str]:
    return {row["known"] for row in records.rows(sql, names=sorted(names))}
