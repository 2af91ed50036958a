"""Reports through the whole agent, with real services: undisturbed, killed after each kind of send, denied."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import httpx

from app.agents.ticket_triage import ticket_triage
from app.agents.ticket_triage.request import EXAMPLE
from app.demo.worlds.tickets import SUBJECT_CHARACTERS_MAX
from steps import Absent, Action, HttpApi
from steps.tools import Spec
from tests.ticket_triage.conftest import Office

CUSTOMERS = [report.customer for report in EXAMPLE.reports]
DONE = "3 reports triaged: 3 tickets opened, 2 escalated, 1 paged."


def test_a_batch_is_triaged_and_what_the_desk_refuses_is_corrected(office: Office) -> None:
    site = office.site
    httpx.post(f"{site.env['SUREFOOT_TICKETS_URL']}/tickets", json={"customer": CUSTOMERS[1], "subject": "an old one"})
    site.working()
    run_id = office.start()
    site.until_state(run_id, "waiting")
    assert (office.issues(), office.pages()) == ([], [])
    office.decide(run_id)
    office.decide(run_id)
    site.until_state(run_id, "completed")
    asked = site.rows("select approver, binding from surefoot.approvals where run_id = %s order by action_id", run_id)
    assert [(row["approver"], row["binding"]["report"], row["binding"]["severity"]) for row in asked] == [
        ("role:lead", 1, "high"),
        ("role:lead", 3, "critical"),
    ]
    site.until_quiet(run_id)

    _, *tickets = office.tickets()
    assert [ticket.key for ticket in tickets] == [f"{run_id}/{n}/0:open_ticket" for n in (3, 5, 6)]
    assert [ticket.customer for ticket in tickets] == CUSTOMERS
    assert len(office.posted("tickets")) == 1 + 4
    cut = f"[low] {EXAMPLE.reports[1].subject}"[:SUBJECT_CHARACTERS_MAX]
    assert [ticket.subject for ticket in tickets] == [
        "[high] The export ends early",
        cut,
        "[critical] The shop is down",
    ]
    assert office.actions(run_id) == {
        "3/0:open_ticket": "SUCCEEDED",
        "4/0:open_ticket": "FAILED",
        "5/0:open_ticket": "SUCCEEDED",
        "6/0:open_ticket": "SUCCEEDED",
        "7/0:escalate": "SUCCEEDED",
        "8/0:escalate": "SUCCEEDED",
        "9/0:page": "SUCCEEDED",
    }
    retried = (
        "select p ->> 'content' as said from surefoot.model_messages m, jsonb_array_elements(m.message -> 'parts') p "
        "where m.run_id = %s and p ->> 'outcome' = 'retried'"
    )
    [row] = site.rows(retried, run_id)
    assert "422" in row["said"]
    assert f"at most {SUBJECT_CHARACTERS_MAX} characters" in row["said"]
    assert [(issue.customer, issue.severity, issue.summary) for issue in office.issues()] == [
        (CUSTOMERS[0], "high", "The export ends early (INC-7)"),
        (CUSTOMERS[2], "critical", "The shop is down"),
    ]
    assert [page.text for page in office.pages()] == [f"report 3 of run {run_id}: The shop is down"]
    mails = {mail.recipients[0]: mail.body for mail in site.world.mails()}
    assert len(site.world.mails()) == len(mails) == 3
    assert "We rate it as high. It is known to us as INC-7" in mails[CUSTOMERS[0]]
    assert "We rate it as low. You have 1 earlier tickets with us." in mails[CUSTOMERS[1]]
    assert "We rate it as critical." in mails[CUSTOMERS[2]]
    assert office.output(run_id) == DONE


def killed_after_each_send(office: Office, broken: Callable[[], None], *, sends: int) -> str:
    """The run, whose workers died after the desk, the tracker and the pager had answered, before any receipt.

    sends: how many there are from the first death at the tracker to the page.
    """
    site = office.site
    first = site.working("effect.after_send:1", broken=broken)
    run_id = office.start()
    assert first.until_it_dies() == -9
    second = site.working(broken=broken)
    site.until_state(run_id, "waiting")
    second.kill()
    third = site.working("effect.after_send:1", broken=broken)
    office.decide(run_id)
    assert third.until_it_dies() == -9
    fourth = site.working(f"effect.after_send:{sends}", broken=broken)
    office.decide(run_id)
    assert fourth.until_it_dies() == -9
    last = site.working(broken=broken)
    office.settle(run_id, "succeeded", office.pages()[0].id)
    site.until_state(run_id, "completed")
    site.until_quiet(run_id)
    last.kill()
    return run_id


def test_killed_after_each_send_everything_is_there_once(office: Office) -> None:
    run_id = killed_after_each_send(office, quick, sends=2)
    keys = [ticket.key for ticket in office.tickets()]
    assert keys == [f"{run_id}/{n}/0:open_ticket" for n in (3, 5, 6)]
    assert Counter(office.posted("tickets"))[keys[0]] == 2  # the same key, sent again
    references = [f"{run_id}/{n}/0:escalate" for n in (7, 8)]
    assert [issue.reference for issue in office.issues()] == office.posted("legacy_tracker") == references
    assert len(office.pages()) == len(office.posted("pager")) == 1
    assert sorted(mail.recipients for mail in office.site.world.mails()) == sorted((one,) for one in CUSTOMERS)
    assert office.output(run_id) == DONE


def test_control_without_keys_and_without_searching_there_is_more_than_one(office: Office) -> None:
    run_id = killed_after_each_send(office, unprotected, sends=3)
    assert len(office.tickets()) == 4
    assert [issue.reference for issue in office.issues()].count(f"{run_id}/7/0:escalate") == 2


def quick() -> None:
    changed(lambda spec: spec)


def unprotected() -> None:
    call = HttpApi.call

    async def without_key(api: HttpApi, method: str, path: str, **more: Any) -> Any:
        return await call(api, method, path, **{**more, "action": None})

    async def never(action: Action[Any], report: int) -> Absent:
        return Absent()

    HttpApi.call = without_key
    changed(lambda spec: replace(spec, verify=spec.verify and never))


def changed(change: Callable[[Spec], Spec]) -> None:
    """Change every tool, and let an attempt be over soon."""
    specs = {
        name: replace(change(spec), limits=replace(spec.limits, attempt_s=1.0))
        for name, spec in ticket_triage.specs.items()
    }
    object.__setattr__(ticket_triage, "specs", MappingProxyType(specs))


def test_what_a_lead_agreed_to_is_asked_about_anew_when_the_triage_is_another_by_then(office: Office) -> None:
    site = office.site
    worker = site.working()
    run_id = office.start()
    site.until_state(run_id, "waiting")
    worker.kill()
    again = (
        "insert into ticket_triage.triage (run_id, report, revision, customer, severity, summary) "
        "select run_id, report, 2, customer, 'low', summary from ticket_triage.triage "
        "where run_id = %s and report = 1"
    )
    site.rows(again, run_id)
    office.decide(run_id)
    site.working()
    office.decide(run_id, "reject")
    office.decide(run_id)
    site.until_state(run_id, "completed")
    asked = "select state, difference from surefoot.approvals where run_id = %s order by requested_at"
    first, second, *_ = site.rows(asked, run_id)
    assert (first["state"], second["state"]) == ("superseded", "rejected")
    assert second["difference"]["binding.revision"] == [1, 2]
    assert [issue.customer for issue in office.issues()] == [CUSTOMERS[2]]
    assert office.actions(run_id)["7/0:escalate"] == "CANCELLED"
    assert "3 tickets opened, 1 escalated, 1 paged. escalate of report 1: " in office.output(run_id)


def test_what_a_lead_denies_and_what_has_nowhere_to_go_is_told_and_the_rest_is_done(office: Office) -> None:
    site = office.site
    site.working(SUREFOOT_PAGER_URL="")
    run_id = office.start()
    office.decide(run_id, "reject")
    office.decide(run_id)
    site.until_state(run_id, "completed")
    assert [issue.customer for issue in office.issues()] == [CUSTOMERS[2]]
    assert (len(office.tickets()), office.pages()) == (3, [])
    output = office.output(run_id)
    assert "3 tickets opened, 1 escalated, 0 paged. escalate of report 1: " in output
    assert "page of report 3: " in output
    assert "SUREFOOT_PAGER_URL is not set" in output
