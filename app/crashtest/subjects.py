"""The subjects that are delivered with Surefoot, each with its world: services on loopback with files of their own."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from app.agents.monthly_report.request import FLIGHTS, WEATHER
from app.agents.ticket_triage.request import EXAMPLE
from app.agents.ticket_triage.tools import page_text
from app.crashtest.fork import ForkFailed, Forks
from app.crashtest.subject import LookedInto, Person, Subject
from app.demo.worlds.pager import pages
from app.demo.worlds.payments import payments
from app.demo.worlds.service import transaction
from transactions import InvalidInput

_READY_S = 20.0
_LOOK_S = 0.01
_REPORT = "monthly_report"
_MONTHS = ("2013-07", "2013-08")
_HERE = __name__.rpartition(".")[0]
_APP = _HERE.rpartition(".")[0]
# Effects of a run, by names that are the same for every run: ?1 is the run's id.
PUBLISHED = """
select 'publication ' || substr(reference, instr(reference, '/') + 1) as effect, count(*) as times from publications
 where substr(reference, 1, length(?1) + 1) = ?1 || '/' group by 1"""
_MAILED = """
select 'mail ' || trim(body, char(10)) as effect, count(*) as times from mails
 where instr(recipients, ?1 || '@') group by 1"""
TICKETS = "select 'ticket ' || subject as effect, count(*) as times from tickets where customer = ?1 group by 1"
_JOBS = """
select 'job ' || substr(reference, instr(reference, '/') + 1) as effect, count(*) as times from jobs
 where substr(reference, 1, length(?1) + 1) = ?1 || '/' group by 1"""
_PAYMENTS = "select 'pay' as effect, count(*) as times from payments where customer = ?1 having count(*) > 0"
_TICKETS_BY_KEY = """
select 'ticket ' || subject as effect, count(*) as times from tickets
 where substr(key, 1, length(?1) + 1) = ?1 || '/' group by subject"""
_ISSUES = """
select 'issue ' || substr(reference, instr(reference, '/') + 1) as effect, count(*) as times from issues
 where substr(reference, 1, length(?1) + 1) = ?1 || '/' group by 1"""
_PAGES = "select 'page' as effect, count(*) as times from pages where instr(text, ?1) having count(*) > 0"
_MAILED_BY = """
select 'mail to ' || json_extract(recipients, '$[0]') as effect, count(*) as times from mails
 where sender = ?1 || '@example.org' group by 1"""
_TRIAGED = """
select report, customer, severity, summary, incident from ticket_triage.triage where run_id = :run_id"""
_NOTES = "select text, count(*) from errands.notes where run_id = :run_id group by text"


@dataclass(frozen=True, slots=True)
class _Service:
    """A service of a world, the variable that tells workers its URL, and what of its file counts."""

    name: str
    variable: str
    counted: str


@dataclass(frozen=True, slots=True)
class _Bundled:
    """`subject`: without what comes from the services: its environment, its count, and by `looks`, which is given their
    files by their names, what a person finds who looks into the world.
    """

    subject: Subject
    services: tuple[_Service, ...]
    looks: Callable[[Mapping[str, Path]], Mapping[str, LookedInto]] = lambda _: {}


def _nothing(_: str) -> Mapping[str, int]:
    return {}


def _who_was_paged(files: Mapping[str, Path]) -> Mapping[str, LookedInto]:
    """A page cannot be looked up by whoever sent it; a person asks those on call what they have got."""

    def page(row: Mapping[str, Any]) -> Sequence[int]:
        about = page_text(row["run_id"], row["request"]["report"], "")
        return [page.id for page in pages(files["pager"]) if page.text.startswith(about)]

    return {"page": page}


def _looks(files: Mapping[str, Path]) -> Mapping[str, LookedInto]:
    """A payment cannot be looked up by whoever sent it; a person goes through the books of the service."""

    def pay(row: Mapping[str, Any]) -> Sequence[int]:
        wanted = (row["run_id"], row["request"]["cents"])
        return [payment.id for payment in payments(files["payments"]) if (payment.customer, payment.cents) == wanted]

    return {"pay": pay}


_BUNDLED = (
    _Bundled(
        Subject(_REPORT, None, _nothing, role="manager"),
        (
            _Service("publishing", "SUREFOOT_PUBLISHING_URL", PUBLISHED),
            _Service("mailbox", "SUREFOOT_SMTP_URL", _MAILED),
        ),
    ),
    _Bundled(
        Subject(
            "errands",
            {"pay": True},
            _nothing,
            role="manager",
            agents=f"{_HERE}.errands:errands",
            unhurried=True,
            changes={"announce": {"title": "party, at eight"}},
            rows=(_NOTES,),
        ),
        (
            _Service("tickets", "ERRANDS_TICKETS_URL", TICKETS),
            _Service("jobs", "ERRANDS_JOBS_URL", _JOBS),
            _Service("payments", "ERRANDS_PAYMENTS_URL", _PAYMENTS),
            _Service("publishing", "SUREFOOT_PUBLISHING_URL", PUBLISHED),
            _Service("mailbox", "SUREFOOT_SMTP_URL", _MAILED),
        ),
        _looks,
    ),
    _Bundled(
        Subject("ticket_triage", EXAMPLE.model_dump(mode="json"), _nothing, role="lead", rows=(_TRIAGED,)),
        (
            _Service("tickets", "SUREFOOT_TICKETS_URL", _TICKETS_BY_KEY),
            _Service("legacy_tracker", "SUREFOOT_TRACKER_URL", _ISSUES),
            _Service("pager", "SUREFOOT_PAGER_URL", _PAGES),
            _Service("mailbox", "SUREFOOT_SMTP_URL", _MAILED_BY),
        ),
        _who_was_paged,
    ),
)


def agents_with(agent: str, agents: str | None) -> str | None:
    """`agents`, and where this one is when it is delivered with Surefoot but not served by itself."""
    mine = [bundle.subject.agents for bundle in _BUNDLED if bundle.subject.agent == agent]
    return ",".join(filter(None, [agents, *mine])) or None


@asynccontextmanager
async def bundled(agent: str, forks: Forks, folder: Path, *, person: Person = "approve") -> AsyncGenerator[Subject]:
    """The subject of this name, with its world: real services on loopback that keep their own files in `folder`.

    Raises InvalidInput for another agent: its world is its owner's.
    """
    bundle = next((bundle for bundle in _BUNDLED if bundle.subject.agent == agent), None)
    if bundle is None:
        known = ", ".join(bundle.subject.agent for bundle in _BUNDLED)
        raise InvalidInput(
            f"The outside world of agent {agent!r} is not known here: test it with the pytest fixture `crash_matrix`, "
            f"which takes a function that counts its effects. From the command line: {known}."
        )
    files = {service: folder / f"{service.name}.sqlite" for service in bundle.services}
    urls = await asyncio.gather(*(start_service(service.name, file, forks) for service, file in files.items()))

    def env(run_id: str) -> Mapping[str, str]:
        told = {service.variable: url for service, url in zip(files, urls, strict=True)}
        address = f"{run_id}@example.org"  # by which the mailbox's file tells runs apart
        return told | {"SUREFOOT_TEAM": address, "SUREFOOT_MAIL_FROM": address}

    def count(run_id: str) -> Mapping[str, int]:
        return {effect: n for service, file in files.items() for effect, n in counted(file, service.counted, run_id)}

    input = _two_months(folder) if agent == _REPORT else bundle.subject.input
    looks = bundle.looks({service.name: file for service, file in files.items()})
    yield replace(bundle.subject, input=input, env=env, count=count, person=person, at_most_once=looks)


def _two_months(folder: Path) -> object:
    """A request for the bundled report on a part of its data, so that a case costs a second less."""
    heading, *lines = FLIGHTS.read_text(encoding="utf-8").splitlines(keepends=True)
    data = folder / "daily.csv"
    data.write_text("".join([heading, *(line for line in lines if line.startswith(_MONTHS))]), encoding="utf-8")
    return {"month": _MONTHS[-1], "data": str(data), "weather": str(WEATHER)}


def counted(file: Path, sql: str, run_id: str) -> list[tuple[str, int]]:
    with transaction(file) as connection:
        rows = cast("list[tuple[str, int]]", connection.execute(sql, (run_id,)).fetchall())
    return [(effect, times) for effect, times in rows]  # rows are sqlite3's own, not tuples


async def start_service(
    name: str,
    file: Path,
    forks: Forks,
    *,
    host: str = "127.0.0.1",
    env: Mapping[str, str] = MappingProxyType({}),
    before: Sequence[str] = (),
) -> str:
    """Start a service; its URL. It ends with the warmed process. Raises ForkFailed.

    host: the address it listens on. env, before: of its process besides, as in `Forks.fork`.
    """
    log = file.with_suffix(".log")
    words = ["--host", host, "--port", "0", "--file", str(file)]
    await forks.fork(f"{_APP}.demo.worlds.{name}", words, env={**forks.env, **env}, log=log, before=before)
    for _ in range(int(_READY_S / _LOOK_S)):
        lines = log.read_text().splitlines() if log.exists() else []
        for line in lines:
            if line.startswith("ready "):
                return line.removeprefix("ready ").strip()
        await asyncio.sleep(_LOOK_S)
    raise ForkFailed(f"The {name} service did not start within {_READY_S:g} s: see {log}.")
