"""The triage's three services beside the mailbox, and workers that know where they are."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app import Surefoot
from app.acting import Acting
from app.agents.ticket_triage.request import EXAMPLE, TriageRequest
from app.demo.worlds import legacy_tracker, pager, tickets, web
from tests.kit import Process, Site, Zygote, acting, until
from transactions.deciding import Decision
from transactions.desk import Outcome

SERVICES = {"TICKETS": "tickets", "TRACKER": "legacy_tracker", "PAGER": "pager"}


class Office:
    """Where reports are triaged. `site` has the database, mailbox and workers; the services' files are the judge."""

    def __init__(self, site: Site, folder: Path, zygote: Zygote) -> None:
        self.site = site
        self._folder = folder
        self.processes: list[Process] = []
        for variable, name in SERVICES.items():
            words = ["-m", f"app.demo.worlds.{name}", "--port", "0", "--file", str(self._file(name))]
            process = Process(folder / f"{name}.log", words, zygote=zygote)
            self.processes.append(process)
            site.env[f"SUREFOOT_{variable}_URL"] = process.until_it_says("ready ").partition(" ")[2].strip()

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.sqlite"

    def tickets(self) -> list[tickets.Ticket]:
        return tickets.tickets(self._file("tickets"))

    def issues(self) -> list[legacy_tracker.Issue]:
        return legacy_tracker.issues(self._file("legacy_tracker"))

    def pages(self) -> list[pager.Page]:
        return pager.pages(self._file("pager"))

    def posted(self, name: str) -> list[str | None]:
        """The key or reference of every POST that reached a service."""
        return [one.reference for one in web.requests(self._file(name)) if one.method == "POST"]

    def start(self, request: TriageRequest = EXAMPLE) -> str:
        return self.site.start("ticket_triage", request.model_dump_json())

    def decide(self, run_id: str, decision: Decision = "approve") -> None:
        """Wait until the run asks a lead, and decide."""
        asked = "select approval_id from surefoot.approvals where run_id = %s and state = 'pending'"
        [row] = until("a lead is asked", lambda: self.site.rows(asked, run_id))
        self._as("ada", ["approver", "lead"], lambda ada: ada.decide(row["approval_id"], decision))

    def settle(self, run_id: str, outcome: Outcome, result: int | None = None) -> None:
        """Wait until an effect of the run is on the desk, and say what became of it."""
        unknown = "select action_id from surefoot.unknown_actions where run_id = %s and waits_for = 'person'"
        [row] = until("an effect is on the desk", lambda: self.site.rows(unknown, run_id))
        self._as("eve", ["operator"], lambda eve: eve.settle(row["action_id"], outcome, result=result))

    def _as(self, name: str, roles: list[str], act: Callable[[Acting], Any]) -> None:
        async def once() -> None:
            surefoot = Surefoot(self.site.database_url, [])
            try:
                await act(await acting(surefoot, name, *roles))
            finally:
                await surefoot.close()

        asyncio.run(once())

    def actions(self, run_id: str) -> dict[str, str]:
        """The state of each action that sends something, by its place and tool."""
        sql = "select * from surefoot.actions where run_id = %s and kind = 'effect' order by turn, position"
        return {row["action_id"].partition("/")[2]: row["state"] for row in self.site.rows(sql, run_id)}

    def output(self, run_id: str) -> str:
        return self.site.rows("select output from surefoot.runs where run_id = %s", run_id)[0]["output"]


@pytest.fixture
def office(site: Site, tmp_path: Path, zygote: Zygote) -> Iterator[Office]:
    open_ = Office(site, tmp_path, zygote)
    yield open_
    for process in open_.processes:
        process.kill()
