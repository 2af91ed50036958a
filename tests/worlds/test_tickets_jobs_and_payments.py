"""Services that honour keys, that can be asked, and that do neither: what they accepted survives a kill."""

import os
from pathlib import Path

import httpx

from app.demo.worlds import legacy_tracker, pager
from app.demo.worlds.jobs import ASKED_UNTIL_FINISHED, jobs
from app.demo.worlds.payments import payments
from app.demo.worlds.tickets import SUBJECT_CHARACTERS_MAX, tickets
from app.demo.worlds.web import requests
from tests.worlds.conftest import Start, kill, port_of

LAMP = {"customer": "c-1", "subject": "the lamp"}


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, trust_env=False, headers={"User-Agent": f"test/1 (pid {os.getpid()})"})


def test_the_ticket_desk_opens_one_ticket_for_each_key_also_over_a_kill(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    process, url = start("tickets", file)
    with client(url) as desk:
        first = desk.post("/tickets", json=LAMP, headers={"Idempotency-Key": "k-1"})
        kill(process)
        start("tickets", file, port_of(url))
        again = desk.post("/tickets", json=LAMP, headers={"Idempotency-Key": "k-1"})
        assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
        assert [ticket.key for ticket in tickets(file)] == ["k-1"]

        other = desk.post("/tickets", json=LAMP | {"subject": "the door"}, headers={"Idempotency-Key": "k-1"})
        assert other.status_code == 409
        assert other.json() == {"detail": "key k-1 opened ticket 1 with another body: send a new key with it"}
        assert len(tickets(file)) == 1

        too_long = desk.post("/tickets", json=LAMP | {"subject": "x" * (SUBJECT_CHARACTERS_MAX + 1)})
        assert too_long.status_code == 422
        assert [desk.post("/tickets", json=LAMP).json()["id"] for _ in range(2)] == [2, 3]
        assert [desk.get(path).status_code for path in ("/tickets", "/tickets/1", "/log")] == [405, 404, 404]
        listed = [desk.get(f"/customers/{customer}/tickets").json() for customer in ("c-1", "c-%2F1")]
        assert listed == [[{"id": number, "subject": "the lamp"} for number in (1, 2, 3)], []]
    assert [(ticket.key, ticket.subject) for ticket in tickets(file)] == [
        ("k-1", "the lamp"),
        (None, "the lamp"),
        (None, "the lamp"),
    ]
    reached = [(request.method, request.reference, request.pid) for request in requests(file)]
    assert reached[:4] == [("POST", key, os.getpid()) for key in ("k-1", "k-1", "k-1", None)]
    assert len(reached) == 11


def test_a_job_is_found_by_its_reference_and_finishes_when_it_was_asked_for(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    process, url = start("jobs", file)
    with client(url) as runner:
        assert runner.get("/jobs", params={"reference": "r-1"}).json() == []
        job = runner.post("/jobs", json={"reference": "r-1", "text": "three words here"}).json()
        assert job == {"id": 1, "reference": "r-1", "state": "running"}
        states = [runner.get("/jobs/1").json()["state"] for _ in range(ASKED_UNTIL_FINISHED - 1)]
        assert set(states) == {"running"}
        early = runner.get("/jobs/1/result")
        assert early.status_code == 409
        assert early.json() == {"detail": "job 1 is running: ask for its result when it has finished"}
        kill(process)
        start("jobs", file, port_of(url))
        assert runner.get("/jobs", params={"reference": "r-1"}).json() == [job]
        assert runner.get("/jobs/1").json()["state"] == "finished"
        assert runner.get("/jobs/1/result").json() == {"words": 3}
        assert runner.post("/jobs/1/cancel").status_code == 409

        assert runner.post("/jobs", json={"reference": "r-1", "text": ""}).json()["id"] == 2
        for _ in range(ASKED_UNTIL_FINISHED + 1):
            assert runner.post("/jobs/2/cancel").json()["state"] == "cancelled"
            assert runner.get("/jobs/2").json()["state"] == "cancelled"
        assert runner.get("/jobs/2/result").status_code == 409
        assert [runner.get(path).status_code for path in ("/jobs/3", "/jobs/3/result")] == [404, 404]
    assert [(job.id, job.reference, job.state) for job in jobs(file)] == [
        (1, "r-1", "finished"),
        (2, "r-1", "cancelled"),
    ]
    assert [request.reference for request in requests(file)][:2] == ["r-1", "r-1"]


def test_a_payment_that_is_asked_for_twice_is_made_twice_and_cannot_be_looked_up(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.sqlite"
    process, url = start("payments", file)
    with client(url) as bank:
        body = {"customer": "c-1", "cents": 1250}
        made = [bank.post("/payments", json=body, headers={"Idempotency-Key": "k-1"}).json()["id"] for _ in range(2)]
        assert made == [1, 2]
        assert bank.post("/payments", json=body | {"cents": 0}).status_code == 422
        assert [bank.get(path).status_code for path in ("/payments", "/payments/1", "/log")] == [405, 404, 404]
    kill(process)
    assert [(payment.customer, payment.cents) for payment in payments(file)] == [("c-1", 1250)] * 2
    assert [request.method for request in requests(file)] == ["POST"] * 3 + ["GET"] * 3


def test_the_older_tracker_makes_an_issue_of_every_request_and_finds_them_by_reference(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "i.sqlite"
    process, url = start("legacy_tracker", file)
    issue = {"reference": "r-1", "customer": "c-1", "severity": "high", "summary": "the lamp"}
    with client(url) as tracker:
        assert tracker.get("/issues", params={"reference": "r-1"}).json() == []
        made = [tracker.post("/issues", json=issue, headers={"Idempotency-Key": "k-1"}).json() for _ in range(2)]
        assert [(one["id"], one["reference"]) for one in made] == [(1, "r-1"), (2, "r-1")]
        kill(process)
        start("legacy_tracker", file, port_of(url))
        assert tracker.get("/issues", params={"reference": "r-1"}).json() == made
        assert tracker.get("/issues", params={"reference": "r-2"}).json() == []
        assert tracker.post("/issues", json=issue | {"summary": ""}).status_code == 422
        assert tracker.get("/issues").status_code == 422
    assert [(one.id, one.summary) for one in legacy_tracker.issues(file, "r-1")] == [(1, "the lamp"), (2, "the lamp")]
    reached = [(one.method, one.reference, one.pid) for one in requests(file)]
    assert reached[:2] == [("GET", "r-1", os.getpid()), ("POST", "r-1", os.getpid())]
    assert len(reached) == 7


def test_a_page_that_is_asked_for_twice_wakes_twice_and_cannot_be_looked_up(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "g.sqlite"
    process, url = start("pager", file)
    page = {"to": "on-call", "text": "the lamp"}
    with client(url) as service:
        sent = [service.post("/pages", json=page, headers={"Idempotency-Key": "k-1"}).json()["id"] for _ in range(2)]
        assert sent == [1, 2]
        assert service.post("/pages", json=page | {"text": ""}).status_code == 422
        assert [service.get(path).status_code for path in ("/pages", "/pages/1")] == [405, 404]
    kill(process)
    assert [(one.recipient, one.text) for one in pager.pages(file)] == [("on-call", "the lamp")] * 2
    assert [one.method for one in requests(file)] == ["POST"] * 3 + ["GET"] * 2
