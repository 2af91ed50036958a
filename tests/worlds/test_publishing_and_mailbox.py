"""The demo's outside world as real processes: what it accepted survives kill -9, and every request is on its log."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import smtplib
import socket
import subprocess
import sys
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest

from app.agents.monthly_report.publishing import PublishingService
from app.demo.worlds.mailbox import mails, submissions
from app.demo.worlds.publishing import publications, requests
from tests.worlds.conftest import ROOT, Start, kill, port_of

BODY = "# Report\n"
SHA256 = hashlib.sha256(BODY.encode()).hexdigest()


async def test_the_publishing_service_publishes_every_request_anew_and_can_be_asked(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "p.sqlite"
    _, url = start("publishing", file)
    service = PublishingService(url)
    assert await service.find("r-1") is None
    first = await service.publish("r-1", "August", BODY, SHA256)
    second = await service.publish("r-1", "August", BODY, SHA256)
    other = await service.publish("r-2", "ä & ü?", BODY, SHA256)
    assert len({first.id, second.id, other.id}) == 3
    assert await service.find("r-1") == first
    assert await service.find("r-2") == other
    assert [(row.reference, row.body, row.sha256) for row in publications(file, "r-1")] == [("r-1", BODY, SHA256)] * 2
    assert len(publications(file)) == 3
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        one = (await client.get(f"/publications/{first.id}")).json()
        assert (one["title"], one["body"]) == ("August", BODY)
        assert (await client.get("/publications/999")).status_code == 404
        assert len((await client.get("/publications")).json()) == 3


async def test_a_killed_publishing_service_keeps_what_it_answered_for(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.sqlite"
    process, url = start("publishing", file)
    before = await PublishingService(url).publish("r-1", "August", BODY, SHA256)
    kill(process)
    assert process.returncode == -signal.SIGKILL
    assert [row.id for row in publications(file)] == [before.id]
    with pytest.raises(httpx.ConnectError):
        await PublishingService(url).find("r-1")
    _, again = start("publishing", file, port_of(url))
    assert again == url
    assert await PublishingService(url).find("r-1") == before
    assert (await PublishingService(url).publish("r-1", "August", BODY, SHA256)).id > before.id


async def test_every_request_is_logged_with_its_sender_also_what_is_refused(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.sqlite"
    _, url = start("publishing", file)
    await PublishingService(url).find("r-1")
    await PublishingService(url).publish("r-1", "August", BODY, SHA256)
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        refused = await client.post("/publications", json={"reference": "r-2"})
        assert refused.status_code == 422
        assert (await client.post("/publications", content=b"\xff")).status_code == 422
        assert (await client.get("/nowhere")).status_code == 404
        log = (await client.get("/log")).json()
    me = os.getpid()
    assert [(entry["method"], entry["path"], entry["reference"], entry["pid"]) for entry in log] == [
        ("GET", "/publications", "r-1", me),
        ("POST", "/publications", "r-1", me),
        ("POST", "/publications", "r-2", None),
        ("POST", "/publications", None, None),
        ("GET", "/nowhere", None, None),
        ("GET", "/log", None, None),
    ]
    assert [entry["at"] for entry in log] == [request.at for request in requests(file)]
    assert [entry["at"] for entry in log] == sorted(entry["at"] for entry in log)
    program = (
        "import asyncio, sys\n"
        "from app.agents.monthly_report.publishing import PublishingService\n"
        "asyncio.run(PublishingService(sys.argv[1]).find('r-1'))\n"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, cwd=ROOT)
    assert await other.wait() == 0
    assert requests(file)[-1].pid == other.pid


async def test_errors_tell_whether_something_was_sent(start: Start, tmp_path: Path) -> None:
    process, url = start("publishing", tmp_path / "p.sqlite")
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        await PublishingService(url).publish("r-1", "August", BODY, "no hash")
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(httpx.ReadTimeout):
        await PublishingService(url, answer_timeout_s=0.3).publish("r-9", "August", BODY, SHA256)
    process.send_signal(signal.SIGCONT)


async def test_a_proxy_in_the_environment_is_not_asked_for_loopback(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    _, url = start("publishing", tmp_path / "p.sqlite")
    assert await PublishingService(url).find("r-1") is None


def letter(subject: str, message_id: str | None = "<entry-1@surefoot.example>") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "agent@example.org", "team@example.org", subject
    if message_id is not None:
        message["Message-ID"] = message_id
    message.set_content("Ünïcode\n.dot\nend\n")
    return message


def send(url: str, message: EmailMessage, *recipients: str) -> None:
    with smtplib.SMTP("127.0.0.1", port_of(url), timeout=10) as client:
        client.send_message(message, to_addrs=list(recipients) or None)


def test_the_mailbox_keeps_every_message_over_a_kill(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "m.sqlite"
    process, url = start("mailbox", file)
    assert mails(file) == []
    send(url, letter("Größe"), "a@example.org", "b@example.org")
    kill(process)
    [mail] = mails(file)
    assert mail.message_id == "<entry-1@surefoot.example>"
    assert (mail.sender, mail.recipients) == ("agent@example.org", ("a@example.org", "b@example.org"))
    assert mail.subject == "Größe"
    assert ("To", "team@example.org") in mail.headers
    assert mail.body == "Ünïcode\n.dot\nend\n"
    _, url = start("mailbox", file, port_of(url))
    send(url, letter("next", "<entry-2@surefoot.example>"))
    assert [mail.subject for mail in mails(file)] == ["Größe", "next"]


def test_the_mailbox_logs_every_submission_and_keeps_one_mail_for_each_message_id(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "m.sqlite"
    process, url = start("mailbox", file)
    send(url, letter("first"))
    send(url, letter("again"))
    kill(process)
    _, url = start("mailbox", file, port_of(url))
    send(url, letter("once more"))
    assert [mail.subject for mail in mails(file)] == ["first"]
    assert [submission.message_id for submission in submissions(file)] == ["<entry-1@surefoot.example>"] * 3
    for _ in range(2):
        send(url, letter("nameless", None))
    assert [mail.message_id for mail in mails(file)] == ["<entry-1@surefoot.example>", None, None]
    assert len(submissions(file)) == 5


def test_the_mailbox_keeps_a_mail_for_each_who_gets_it_under_one_message_id(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "m.sqlite"
    _, url = start("mailbox", file)
    for recipient in ("a@example.org", "b@example.org", "a@example.org"):
        send(url, letter("first"), recipient)
    assert [mail.recipients for mail in mails(file)] == [("a@example.org",), ("b@example.org",)]
    assert len(submissions(file)) == 3


@pytest.mark.parametrize(
    "raw", [b"no headers at all", b"Content-Type: text/plain; charset=klingon\r\n\r\nhi\r\n", b"\r\n\xff\r\n"]
)
def test_the_mailbox_takes_odd_messages_too(raw: bytes, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "m.sqlite"
    _, url = start("mailbox", file)
    with smtplib.SMTP("127.0.0.1", port_of(url), timeout=10) as client:
        client.sendmail("a@example.org", ["b@example.org"], raw)
    [mail] = mails(file)
    assert mail.message_id is None


@pytest.mark.parametrize("name", ["publishing", "mailbox"])
def test_a_port_in_use_is_one_sentence_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", f"app.demo.worlds.{name}", "--port", str(port), "--file", str(tmp_path / "x")]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert re.fullmatch(
        rf"{name}: cannot listen on 127\.0\.0\.1:{port} \(.+\); choose another --port, or 0\.\n", ended.stderr
    )
