"""The performance in numbers: what the table and the JSON file say."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from app.demo.judge import Claim, Facts, RunFacts, duplicate_effects, lost_results
from app.demo.options import Options
from app.demo.records import Records


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: how often an effect was asked for and sent, and how many there are in the world."""

    effect: str
    asked: int
    plain_sent: int
    plain_in_the_world: int
    sent: int
    in_the_world: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What `--json` writes.

    `publications`, `mails`, the report and its figures are the first run's; everything else is over all runs of the
    performance. `stored_bytes`: of the rows of these runs, the engine's included.
    """

    run_status: str
    kills: Sequence[Mapping[str, Any]]
    publications: int
    mails: int
    business_rows: int
    duplicate_effects: int
    lost_results: int
    plain_publications: int
    report_path: str
    report_sha256: str
    figures: Mapping[str, int]
    seconds: float
    run_ids: Sequence[str]
    table: Sequence[Line]
    stored_rows: int
    stored_bytes: int
    claims: Sequence[str]
    false_claims: Sequence[str]

    def as_json(self, options: Options) -> dict[str, Any]:
        return {**asdict(self), "seed": options.seed if options.kills is None else options.seed or 0}


def summarize(records: Records, folder: Path, facts: Facts, claims: Sequence[Claim], *, seconds: float) -> Summary:
    """Count, and write the report of the first run into `folder`."""
    first = facts.runs[0]
    published, mailed = _table(facts, [first])
    report, digest = _write_report(folder, facts)
    rows, size = _stored(records, [run.run_id for run in facts.runs])
    return Summary(
        run_status=next((run.state for run in facts.runs if run.state != "completed"), first.state),
        kills=[
            {
                "pid": kill.pid,
                "failpoint": kill.failpoint,
                "wait_status": kill.wait_status,
                "continued_by_pid": kill.continued_by_pid,
                "run_id": kill.run_id,
            }
            for kill in facts.kills
        ],
        publications=published.in_the_world,
        mails=mailed.in_the_world,
        business_rows=facts.business_rows,
        duplicate_effects=duplicate_effects(facts),
        lost_results=lost_results(facts),
        plain_publications=published.plain_in_the_world,
        report_path=report,
        report_sha256=digest,
        figures=first.figures,
        seconds=round(seconds, 1),
        run_ids=[run.run_id for run in facts.runs],
        table=_table(facts, facts.runs),
        stored_rows=rows,
        stored_bytes=size,
        claims=[claim.says for claim in claims if claim.holds],
        false_claims=[str(claim) for claim in claims if not claim.holds],
    )


def _table(facts: Facts, runs: Sequence[RunFacts]) -> tuple[Line, Line]:
    world = facts.world
    effects = [effect.action_id for run in runs for effect in run.effects]
    message_ids = [mail.message_id for run in runs for mail in run.mails if mail.message_id is not None]
    posts = [request.reference for request in world.requests if request.method == "POST"]
    published = [row.reference for row in world.publications]
    plain = facts.plain_reference
    return (
        Line(
            "publish the report",
            asked=len(effects),
            plain_sent=posts.count(plain),
            plain_in_the_world=published.count(plain),
            sent=sum(posts.count(effect) for effect in effects),
            in_the_world=sum(published.count(effect) for effect in effects),
        ),
        Line(
            "mail the team",
            asked=sum(len(run.mails) for run in runs),
            plain_sent=facts.plain_mails,
            plain_in_the_world=facts.plain_mails,
            sent=sum(submission.message_id in message_ids for submission in world.submissions),
            in_the_world=sum(mail.message_id in message_ids for mail in world.mails),
        ),
    )


def _write_report(folder: Path, facts: Facts) -> tuple[str, str]:
    """The path and SHA-256 of the published bytes; empty where nothing was published."""
    first = facts.runs[0]
    references = {effect.action_id for effect in first.effects}
    for row in facts.world.publications:
        if row.reference in references:
            content = row.body.encode()
            file = folder / f"report-{first.month}.md"
            file.write_bytes(content)
            return str(file), hashlib.sha256(content).hexdigest()
    return "", ""


def _stored(records: Records, run_ids: Sequence[str]) -> tuple[int, int]:
    """How many rows and bytes these runs have in the database."""
    sql = files("app").joinpath("demo", "stored.sql").read_text()
    row = records.stored(sql, runs=list(run_ids))
    return row["n"], row["size"]
