"""What the database says, read by plain SQL under the application's own role."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue

from app import machine
from app.acting.base import told_in_words
from app.loading import load_agents
from app.settings import Settings
from app.surefoot import Surefoot
from transactions import Conflict, Database, Role

STARTER = "demo@demo"  # no name that somebody else would have
KEY_PREFIX = "demo-"  # the idempotency key of every run of a demo begins so


class Records:
    """Reads from one database, one question after the other. Close it by leaving its block."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._surefoot = Surefoot(url, load_agents(None), settings=Settings(database_url=url))
        self._whole = Database(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._surefoot.close())
        self._runner.run(self._whole.close())
        self._runner.close()

    def rows(self, sql: str, /, **parameters: object) -> Sequence[Mapping[str, Any]]:
        """The rows of one read-only statement. Raises DatabaseUnavailable."""

        async def ask() -> Sequence[Mapping[str, Any]]:
            async with told_in_words():
                return await self._surefoot.database.query(self._surefoot.tenant, sql, **parameters)

        return self._runner.run(ask())

    def stored(self, sql: str, /, **parameters: object) -> Mapping[str, Any]:
        """The only row of a statement that looks at the engine's rows as well. Raises DatabaseUnavailable."""

        async def ask() -> Mapping[str, Any]:
            async with told_in_words():
                return (await self._whole.query_all(sql, **parameters))[0]

        return self._runner.run(ask())

    def value(self, sql: str, /, **parameters: object) -> Any:
        """The first column of the first row; None when there is no row."""
        rows = self.rows(sql, **parameters)
        return next(iter(rows[0].values())) if rows else None

    def now(self) -> datetime:
        """The database's clock."""
        return self.value("select clock_timestamp()")

    def run_of_key(self, key: str) -> str | None:
        return self.value("select run_id from surefoot.runs where idempotency_key = :key", key=key)

    def state(self, run_id: str) -> str:
        return self.value("select state from surefoot.runs where run_id = :run_id", run_id=run_id)

    def is_over(self, run_id: str) -> bool:
        """The run has ended and everything it asked for is delivered."""
        status = self.rows("select * from surefoot.run_status where run_id = :run_id", run_id=run_id)[0]
        return status["ended_at"] is not None and status["open_deliveries"] == 0

    def is_inert(self, run_id: str) -> bool:
        """The run is over, and the engine has nothing of it left to execute either."""
        left = self.value(
            "select count(*) from dbos.workflow_status where starts_with(workflow_uuid, :run_id || ':') "
            "and status in ('PENDING', 'ENQUEUED', 'DELAYED')",
            run_id=run_id,
        )
        return left == 0 and self.is_over(run_id)

    def is_approved(self, run_id: str) -> bool:
        return bool(
            self.value(
                "select count(*) from surefoot.approvals where run_id = :run_id and state = 'approved'", run_id=run_id
            )
        )

    # What others left or do on this database.

    def other_workers(self, mine: Sequence[int] = ()) -> list[str]:
        """`pid P on HOST` of every live worker whose pid is not among `mine`."""
        rows = self.rows(
            "select host, pid, machine, pid_start from surefoot.workers "
            "where state = 'live' and lease_until > clock_timestamp()"
        )
        here = machine.machine_id()
        return [
            f"pid {row['pid']} on {row['host']}"
            for row in rows
            if not (row["machine"] == here and (row["pid"] in mine or machine.is_gone(row["pid"], row["pid_start"])))
        ]

    def other_peoples_work(self) -> int:
        """Runs that no demo started and that a worker would take up, or that have something to deliver."""
        return self.value(
            "select count(*) from surefoot.run_status s join surefoot.runs r using (run_id) "
            "where coalesce(not starts_with(r.idempotency_key, :prefix), true) "
            "and (s.state in ('queued', 'running', 'cancelling') or s.open_deliveries > 0)",
            prefix=KEY_PREFIX,
        )

    def left_by_demos(self) -> Sequence[Mapping[str, Any]]:
        """`run_id` and `state` of the unfinished runs of earlier demos."""
        return self.rows(
            "select run_id, state from surefoot.runs where starts_with(idempotency_key, :prefix) and ended_at is null",
            prefix=KEY_PREFIX,
        )

    def cancel(self, run_id: str) -> None:
        """Cancel what an earlier demo left, unless it is over by now."""
        try:
            self._runner.run(self._surefoot.cancel(run_id, reason="left by an earlier demo"))
        except Conflict:
            return

    # People.

    def approve(self, approval_id: str, *, by: str, role: str) -> None:
        """As a principal of the demo's own. Raises Conflict (it is decided)."""

        async def decide() -> None:
            await self._surefoot.set_principal(by, roles=[Role.APPROVER, role])
            await (await self._surefoot.acting_as(by)).decide(approval_id, "approve")

        self._runner.run(decide())

    def edit(self, approval_id: str, name: str, version: int, ending: str, *, by: str, role: str) -> None:
        """Approve a text that is an artifact with something at its end, as a principal of the demo's own."""

        async def decide() -> None:
            await self._surefoot.set_principal(by, roles=[Role.APPROVER, role])
            who = await self._surefoot.acting_as(by)
            text = (await who.artifact(name, version)).decode()
            await who.decide(approval_id, "approve", changes=text + ending)

        self._runner.run(decide())

    def settle(self, action_id: str, *, by: str, result: JsonValue, reason: str) -> None:
        """Say as a principal of the demo's own that an effect succeeded."""

        async def settle() -> None:
            await self._surefoot.set_principal(by, roles=[Role.OPERATOR])
            who = await self._surefoot.acting_as(by)
            await who.settle(action_id, "succeeded", result=result, reason=reason)

        self._runner.run(settle())

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """For the API of a worker: who asks, or nothing while no token was ever made here."""

        async def token() -> str | None:
            if await self._surefoot.is_open():
                return None
            await self._surefoot.set_principal(STARTER, roles=[Role.OPERATOR])
            return await self._surefoot.create_token(STARTER, expires=timedelta(hours=1))

        found = self._runner.run(token())
        return {} if found is None else {"Authorization": f"Bearer {found}"}
