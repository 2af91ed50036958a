"""A site for the agents of `tests/agents/scripted.py`: every request to the model and outside is counted."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import Process, Site, World, Zygote, acting, until
from tests.outside import Outside
from transactions import failpoints
from transactions.deciding import Decision

Call = tuple[str, dict[str, Any]]
# Points that a process passes at its own pace, whatever a run does.
ALWAYS = ("lease.", "relay.", "watchdog.", "worker.", "share.look", "queue.", "schedule.")


class Stage(Site):
    """`world` need not run: without it there is no mail."""

    def __init__(self, database_url: str, world: World, outside: Outside, folder: Path, zygote: Zygote) -> None:
        super().__init__(database_url, world, folder, zygote)
        self.outside = outside
        self._model_log = folder / "model.log"
        self._passages_log = folder / "passages.log"
        self.env |= {
            "SUREFOOT_AGENTS": "tests.agents.scripted:AGENTS",
            "TEST_MODEL_LOG": str(self._model_log),
            "TEST_PASSAGES_LOG": str(self._passages_log),
            **outside.env,
        }

    def script(self, *turns: list[Call], agent: str = "scripted", key: str | None = None) -> str:
        """Start a run whose model makes these calls, turn by turn."""
        return self.start(agent, json.dumps({"turns": turns}), key)

    def announce(self) -> None:
        """Make the agents known, so that runs can be started while no worker lives; the last look has told of room."""
        worker = self.working()
        until("a look at the queue", lambda: self.rows("select 1 from surefoot.dispatch where room > 0"))
        worker.kill()

    def told(self, run_id: str) -> list[list[str]]:
        """What the model of a completed run was answered: tool, outcome, content."""
        return json.loads(self.rows("select output from surefoot.runs where run_id = %s", run_id)[0]["output"])

    def model_requests(self) -> list[tuple[int, int]]:
        """Pid and turn of every request that the model got."""
        lines = self._model_log.read_text().splitlines() if self._model_log.exists() else []
        return [(int(pid), int(turn)) for pid, _, turn in (line.partition(" ") for line in lines)]

    def passages(self, worker: Process) -> list[str]:
        """The failpoints that runs passed in a worker with `broken=records_passages`, in order."""
        lines = (line.split() for line in self._passages_log.read_text().splitlines())
        return [name for pid, name in lines if int(pid) == worker.pid and not name.startswith(ALWAYS)]

    def notes(self, run_id: str) -> list[dict[str, Any]]:
        return self.rows("select note, text from scripted.notes where run_id = %s order by note", run_id)

    def timeline(self, run_id: str, *whats: str) -> list[dict[str, Any]]:
        """The rows of `surefoot.run_timeline` of these sorts, in order."""
        return self.rows(
            "select * from surefoot.run_timeline where run_id = %s and what = any(%s) order by line",
            run_id,
            list(whats),
        )

    def approvals(self, run_id: str) -> list[dict[str, Any]]:
        """In the order the model asked."""
        return self.rows(
            "select p.*, a.position from surefoot.approvals p join surefoot.actions a using (action_id) "
            "where p.run_id = %s order by a.turn, a.position, p.requested_at",
            run_id,
        )

    def says(
        self,
        name: str,
        decision: Decision,
        approval_id: str,
        *,
        reason: str | None = None,
        changes: JsonValue = None,
    ) -> None:
        """What a manager of this name says of an approval; returns once that is committed. Raises as `decide`."""

        async def once() -> None:
            surefoot = Surefoot(self.database_url, AGENTS)
            try:
                who = await acting(surefoot, name, "approver", "manager")
                await who.decide(approval_id, decision, reason=reason, changes=changes)
            finally:
                await surefoot.close()

        asyncio.run(once())

    def engine_rows(self, run_id: str, *states: str) -> int:
        """How many of the engine's rows of the run are in these states."""
        return self.rows(
            "select count(*) as n from dbos.workflow_status where workflow_uuid like %s || ':%%' and status = any(%s)",
            run_id,
            list(states),
        )[0]["n"]

    def until_nothing_is_written(self) -> None:
        """Until no transaction in this database has written anything that is not committed."""
        writing = (
            "select count(*) as n from pg_stat_activity where datname = current_database() and backend_xid is not null"
        )
        until("no transaction writes", lambda: self.rows(writing)[0]["n"] == 0)


def records_passages() -> None:
    """For `Stage.worker(broken=...)`: nothing is broken, each failpoint is written down with its process."""
    failpoints.failpoint.__code__ = _record.__code__  # the function itself: others have imported it by name


def _record(name: str) -> None:
    # Runs with the globals of `transactions.failpoints`.
    with Path(os.environ["TEST_PASSAGES_LOG"]).open("a") as file:
        file.write(f"{os.getpid()} {name}\n")
