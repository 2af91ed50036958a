"""The tools of the monthly report, by kind."""

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_ai import RunContext

from app.agents.monthly_report.csv_file import DailyFile, parse_month
from app.agents.monthly_report.documents import Document, find_documents
from app.agents.monthly_report.figures import Figures, Query, compute_figures
from app.agents.monthly_report.publishing import Publication, PublishingService
from app.agents.monthly_report.render import render
from app.agents.monthly_report.request import ReportRequest, read_daily_file
from outbox import Mail
from steps import Absent, Action, Approval, Found, Refused, Tools, after
from transactions import ArtifactRef, Run, Tx

PUBLISH_ATTEMPT_S = 8.0


@dataclass(slots=True)
class Deps:
    """Made from the run and the environment. `daily` and `rendered` are made before a transaction that needs them."""

    request: ReportRequest
    query: Query
    publisher: PublishingService | None
    team: list[str]
    daily: DailyFile | None = None
    rendered: dict[str, bytes] = field(default_factory=dict[str, bytes])


def make_deps(run: Run) -> Deps:
    url = os.environ.get("SUREFOOT_PUBLISHING_URL")
    return Deps(
        request=ReportRequest.model_validate(run.input),
        query=run.query,
        publisher=PublishingService(url) if url else None,
        team=[address.strip() for address in os.environ.get("SUREFOOT_TEAM", "team@example.org").split(",")],
    )


class DataSet(BaseModel):
    """`data_set` is the SHA-256 of the file's bytes."""

    data_set: str
    name: str
    rows: int


class Rendered(BaseModel):
    sha256: str
    size_bytes: int


tools = Tools[Deps](id="monthly_report")


async def read_file(deps: Deps) -> None:
    deps.daily = await asyncio.to_thread(read_daily_file, deps.request)


@tools.transaction(before=read_file, phase="Loading")
async def load_data(tx: Tx[Deps]) -> DataSet:
    """Load the request's file of daily figures. A file that was loaded before is the same data set."""
    file = tx.deps.daily
    assert file is not None
    inserted = await tx.execute(
        "insert into monthly_report.data_sets (data_set, name, rows) values (:data_set, :name, :rows) "
        "on conflict do nothing returning data_set",
        data_set=file.sha256,
        name=file.name,
        rows=len(file.rows),
    )
    if inserted:
        await tx.execute(
            "insert into monthly_report.daily_figures "
            "select :data_set, r.* from jsonb_to_recordset(cast(:rows as jsonb)) as r (date date, origin text, "
            "carrier text, airline text, flights bigint, cancelled bigint, departure_delay_min bigint, "
            "delayed_departures bigint, arrivals bigint, late_arrivals bigint, miles bigint)",
            data_set=file.sha256,
            rows=json.dumps([asdict(row) for row in file.rows], default=str),
        )
    return DataSet(data_set=file.sha256, name=file.name, rows=len(file.rows))


@tools.read(phase="Analysing")
async def monthly_figures(ctx: RunContext[Deps], data_set: str) -> Figures:
    """The month's figures against the months before it, with the row counts they rest on."""
    return await _figures(ctx.deps, data_set)


@tools.read(phase="Analysing")
async def supporting_documents(ctx: RunContext[Deps], data_set: str) -> list[Document]:
    """Documents that may explain the figures, each with its id and hash to cite."""
    return await _documents(ctx.deps, await _figures(ctx.deps, data_set))


@tools.read(phase="Writing")
async def render_report(ctx: RunContext[Deps], data_set: str, commentary: str) -> Rendered:
    """Render the report with your commentary. Every number in it comes from the data set."""
    content = await _render(ctx.deps, data_set, commentary)
    return Rendered(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


async def render_again(deps: Deps, data_set: str, commentary: str, sha256: str) -> None:
    """Another worker has rendered it: what it had in memory is gone."""
    if sha256 not in deps.rendered:
        await _render(deps, data_set, commentary)


@tools.transaction(before=render_again, phase="Writing")
async def save_report(tx: Tx[Deps], data_set: str, commentary: str, sha256: str) -> ArtifactRef:  # noqa: ARG001
    """Save the rendered report as the next version of its artifact."""
    content = tx.deps.rendered.get(sha256)
    if content is None:
        raise ValueError("the report renders to other bytes now than before: render it again")
    return await tx.save_artifact(f"monthly-report-{tx.deps.request.month}", content, media_type="text/markdown")


async def saved_here(tx: Tx[Deps], artifact: str, version: int) -> str | None:
    """Only what this very run has saved is published. An artifact's version never changes, so nothing is locked."""
    rows = await tx.execute(
        "select 1 from surefoot.artifacts where name = :name and version = :version and run_id = :run_id",
        name=artifact,
        version=version,
        run_id=tx.run.run_id,
    )
    return None if rows else f"this run has saved no artifact {artifact} version {version}: save the report first"


async def report_version(tx: Tx[Deps], artifact: str, version: int) -> Mapping[str, Any]:
    """What a manager approves: this version of the report, by its hash. It is there: see `saved_here`."""
    [row] = await tx.execute(
        "select name, version, sha256 from surefoot.artifacts where name = :name and version = :version",
        name=artifact,
        version=version,
    )
    return {"artifact": row["name"], "version": row["version"], "sha256": row["sha256"]}


async def published(action: Action[Deps], artifact: str, version: int) -> Found[Publication] | Absent:  # noqa: ARG001
    """The service can be searched by our reference, and lists a publication as soon as it has made it."""
    publication = await _publisher(action.deps).find(action.id)
    if publication is None:
        return Absent({"looked_up": action.id})
    return Found(publication, evidence=publication.model_dump(mode="json"))


async def edited(tx: Tx[Deps], text: JsonValue, artifact: str, version: int) -> Mapping[str, Any]:  # noqa: ARG001
    """The whole text as the manager wants it published is the next version of the report."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError("give the whole text of the report as it is to be published")
    saved = await tx.save_artifact(artifact, text.encode(), media_type="text/markdown")
    return {"artifact": saved.name, "version": saved.version}


@tools.effect(
    verify=published,
    approval=Approval(by="role:manager", binds=report_version, expires=timedelta(days=3), edit=edited),
    requires=saved_here,
    phase="Publishing",
    attempt_s=PUBLISH_ATTEMPT_S,
)
async def publish_report(action: Action[Deps], artifact: str, version: int) -> Publication:
    """Publish a saved version of the report, once a manager has approved it."""
    publisher = _publisher(action.deps)
    content = await action.run.artifact(artifact, version)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != action.bound["sha256"]:
        raise Refused(f"{artifact} version {version} is not what was approved")
    return await publisher.publish(action.id, f"Monthly report {action.deps.request.month}", content.decode(), sha256)


@tools.transaction(requires=after("publish_report"), phase="Telling the team")
async def tell_team(tx: Tx[Deps], artifact: str, version: int, sha256: str) -> str:
    """Mail the team that this version of the report is published; or the one that the manager made of it."""
    edited = await tx.execute(
        "select f.name, f.version, f.sha256 from surefoot.actions a join surefoot.artifacts f "
        "on f.name = a.request ->> 'artifact' and f.version = cast(a.request ->> 'version' as integer) "
        "where a.run_id = :run_id and a.tool = 'publish_report' and a.state = 'SUCCEEDED' and a.revises is not null",
        run_id=tx.run.run_id,
    )
    if edited:
        artifact, version, sha256 = edited[-1]["name"], edited[-1]["version"], edited[-1]["sha256"]
    subject = f"Published: {artifact} version {version}"
    mail = Mail(to=tx.deps.team, subject=subject, body=f"{subject}, SHA-256 {sha256}.")
    return f"queued as {await tx.outbox('mail', mail)}"


def _publisher(deps: Deps) -> PublishingService:
    if deps.publisher is None:
        raise Refused("SUREFOOT_PUBLISHING_URL is not set, so there is nowhere to publish: set it on every worker.")
    return deps.publisher


async def _figures(deps: Deps, data_set: str) -> Figures:
    return await compute_figures(deps.query, data_set=data_set, month=parse_month(deps.request.month))


async def _documents(deps: Deps, figures: Figures) -> list[Document]:
    request = deps.request
    return await asyncio.to_thread(
        find_documents,
        parse_month(request.month),
        weather=request.weather_path,
        notes=request.notes_path,
        days=figures.days,
    )


async def _render(deps: Deps, data_set: str, commentary: str) -> bytes:
    figures = await _figures(deps, data_set)
    documents = await _documents(deps, figures)

    content = (await asyncio.to_thread(render, figures, documents, commentary=commentary)).encode()
    deps.rendered[hashlib.sha256(content).hexdigest()] = content
    return content
