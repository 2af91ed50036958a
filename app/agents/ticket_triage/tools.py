"""The tools of the triage, by kind. Each takes the number of a report, so that the model cannot change whose it is."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field, TypeAdapter
from pydantic_ai import ModelRetry, RunContext

from app.agents.ticket_triage.services import ATTEMPT_S, Deps, Made, there
from outbox import Mail
from steps import Absent, Action, Approval, Found, NotSent, Refused, Tools, Unsure
from transactions import Tx

Severity = Literal["low", "high", "critical"]
ESCALATED = ("high", "critical")
_TRIAGE = """
select revision, customer, severity, summary from ticket_triage.triage
 where run_id = :run_id and report = :report order by revision desc limit 1"""
_SAVE = """
insert into ticket_triage.triage (run_id, report, revision, customer, severity, summary, incident)
select :run_id, :report, coalesce(max(revision), 0) + 1, :customer, :severity, :summary, :incident
  from ticket_triage.triage where run_id = :run_id and report = :report
    on conflict do nothing
returning revision"""


class EarlierTicket(BaseModel):
    """A ticket of the customer, by the desk's own number."""

    id: int
    subject: str


class Incident(BaseModel):
    """What is known to be wrong just now."""

    incident: str
    title: str


_EARLIER = TypeAdapter(list[EarlierTicket])
_FOUND = TypeAdapter(list[Made])

tools = Tools[Deps](id="ticket_triage")


@tools.read(phase="Looking things up")
async def earlier_tickets(ctx: RunContext[Deps], report: int) -> list[EarlierTicket]:
    """The tickets that the report's customer has at the desk already, oldest first."""
    customer = quote(ctx.deps.report(report).customer, safe="")
    answer = await there(ctx.deps.desk, "SUREFOOT_TICKETS_URL").call("GET", f"/customers/{customer}/tickets")
    return _EARLIER.validate_python(answer.body)


@tools.read(phase="Looking things up")
async def known_incidents(ctx: RunContext[Deps], report: int) -> list[Incident]:
    """Open incidents whose component the report names."""
    given = ctx.deps.report(report)
    rows = await ctx.deps.run.query(
        "select incident, title from ticket_triage.incidents "
        "where closed_at is null and strpos(lower(:words), lower(component)) > 0 order by incident",
        words=f"{given.subject}\n{given.text}",
    )
    return [Incident.model_validate(row) for row in rows]


@tools.transaction(phase="Triaging")
async def save_triage(
    tx: Tx[Deps],
    report: int,
    severity: Severity,
    summary: Annotated[str, Field(min_length=1, max_length=500)],
    reply: Annotated[str, Field(min_length=1, max_length=5000)],
    incident: str | None = None,
) -> str:
    """Save how severe a report is, and mail the reply to its customer. A later one stands in place of an earlier."""
    given = tx.deps.report(report)
    if incident is not None and not await tx.execute(
        "select 1 from ticket_triage.incidents where incident = :incident", incident=incident
    ):
        raise ModelRetry(f"There is no incident {incident!r}: give one that known_incidents answered, or none.")
    saved = await tx.execute(
        _SAVE,
        run_id=tx.run.run_id,
        report=report,
        customer=given.customer,
        severity=severity,
        summary=summary,
        incident=incident,
    )
    if not saved:
        raise ModelRetry(f"Another call has just saved report {report}: save it again only if that one was wrong.")
    mail = Mail(to=[given.customer], subject=f"Your report: {given.subject}", body=reply)
    await tx.outbox("mail", mail, key=given.customer)
    return f"revision {saved[0]['revision']}, and the reply is queued"


@tools.effect(idempotent=True, attempt_s=ATTEMPT_S, phase="Opening a ticket")
async def open_ticket(action: Action[Deps], report: int, subject: str) -> int:
    """Open a ticket for a report at the desk; its number."""
    desk = there(action.deps.desk, "SUREFOOT_TICKETS_URL")
    customer = action.deps.report(report).customer
    answer = await desk.call("POST", "/tickets", action=action, json={"customer": customer, "subject": subject})
    return Made.model_validate(answer.body).id


async def triage_row(tx: Tx[Deps], report: int) -> Mapping[str, Any]:
    """What a lead agrees to: how this report was triaged last.

    Once one is saved it never raises: it is asked again when the call is done, to see whether that is another by then.
    """
    rows = await tx.execute(_TRIAGE, run_id=tx.run.run_id, report=report)
    if not rows:
        raise ModelRetry(f"Report {report} is not triaged: save its triage first.")
    return {"report": report, **rows[0]}


async def escalated(action: Action[Deps], report: int) -> Found[int] | Absent | Unsure:  # noqa: ARG001
    """The tracker can be searched by our reference, and has an issue as soon as it has answered."""
    tracker = there(action.deps.tracker, "SUREFOOT_TRACKER_URL")
    answer = await tracker.call("GET", "/issues", params={"reference": action.id})
    match _FOUND.validate_python(answer.body):
        case []:
            return Absent({"searched_for": action.id})
        case [issue]:
            return Found(issue.id, evidence=answer.body)
        case _:
            return Unsure(answer.body)


@tools.effect(
    verify=escalated,
    approval=Approval(by="role:lead", binds=triage_row, expires=timedelta(days=1)),
    attempt_s=ATTEMPT_S,
    phase="Escalating",
)
async def escalate(action: Action[Deps], report: int) -> int:
    """Escalate a report that is high or critical to the developers' tracker, once a lead has agreed; the issue."""
    if action.bound["severity"] not in ESCALATED:
        raise Refused(f"report {report} is {action.bound['severity']}: only what is high or critical is escalated")
    tracker = there(action.deps.tracker, "SUREFOOT_TRACKER_URL")
    agreed = {name: action.bound[name] for name in ("customer", "severity", "summary")}
    answer = await tracker.call("POST", "/issues", json={"reference": action.id, **agreed})
    return Made.model_validate(answer.body).id


@tools.effect(at_most_once=True, attempt_s=ATTEMPT_S, phase="Paging")
async def page(action: Action[Deps], report: int) -> int:
    """Page the people on call for a critical report; the page's number."""
    pager = there(action.deps.pager, "SUREFOOT_PAGER_URL")
    try:
        rows = await action.run.query(_TRIAGE, run_id=action.run.run_id, report=report)
    except Exception as error:  # whatever it is, nobody has been woken yet, and so no person has to look
        raise NotSent(f"the triage of report {report} could not be read: {error}") from error
    if not rows or rows[0]["severity"] != "critical":
        raise Refused(f"report {report} is not saved as critical: nobody is woken for it")
    text = page_text(action.run.run_id, report, rows[0]["summary"])
    answer = await pager.call("POST", "/pages", json={"to": "on-call", "text": text})
    return Made.model_validate(answer.body).id


def page_text(run_id: str, report: int, summary: str) -> str:
    """What those on call read; the run and the report are the only way to tell pages apart."""
    return f"report {report} of run {run_id}: {summary}"
