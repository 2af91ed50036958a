"""Runs: start them, look at them, release, cancel, undo."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from app.acting.base import Base
from steps import DurableAgent
from steps.clock import SystemClock
from transactions import InvalidInput, Role, RunId, RunState, Session, UnknownAgent, events, runs, undo
from transactions.undo import Done, Way

_DELAY_S_MAX = 366 * 86_400.0


class RunActs(Base):
    async def start(
        self,
        agent: DurableAgent[Any] | str,
        input: object,
        *,
        key: str | None = None,
        priority: int = 0,
        not_before: datetime | None = None,
        delay_s: float | None = None,
        session: Session | None = None,
    ) -> RunId:
        """Start a run and return its id. The same `key` and input is the same run. Needs an operator.

        priority: from -100 to 100; the higher goes first. not_before, or delay_s from now: when it may begin.
        session: start it in the caller's own transaction; it exists when that commits, and only then.
        Raises UnknownAgent, InvalidInput, Conflict (the key came with another input), QueueFull.
        """
        self.who.need(Role.OPERATOR)
        known = self._known(agent)
        value = known.parse_input(input)
        due = _due(not_before, delay_s)

        async def begin(session: Session) -> RunId:
            return await runs.start(
                session,
                agent=known.name,
                input=value,
                key=key,
                tenant=self.tenant,
                principal=self.who.name,
                priority=priority,
                not_before=due,
            )

        if session is not None:
            return await begin(session)
        async with self._transaction("run.start", Role.OPERATOR) as own:
            return await begin(own)

    async def status(self, run_id: str) -> Mapping[str, Any]:
        """The run's row of `surefoot.run_status`. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="run", id=run_id) as session:
            return await runs.status(session, RunId(run_id))

    async def runs(self, *, state: RunState | None = None, limit: int = 50) -> Sequence[Mapping[str, Any]]:
        """The newest runs first."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await runs.page(session, self.tenant, state=state, limit=limit)

    async def stuck(self, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Runs that are in a state beyond its limit: since when, why, and what to do."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await runs.stuck(session, self.tenant, limit=limit)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Events of a run with a number above `after`, in order. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="run", id=run_id) as session:
            return await events.page(session, RunId(run_id), after=after, limit=limit)

    async def timeline(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """The rows of `surefoot.run_timeline`, in order. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER, noun="run", id=run_id) as session:
            return await runs.timeline(session, RunId(run_id))

    async def release(self, run_id: str) -> None:
        """Let a held run go on, or wait again; one that is to be held is not. Needs an operator.

        Raises NotFound, Conflict.
        """
        async with self._transaction("run.release", Role.OPERATOR, noun="run", id=run_id) as session:
            await runs.release(session, RunId(run_id), by=self.who.name)

    async def cancel(self, run_id: str, *, reason: str = "asked for") -> None:
        """Cancel a run that is not over; a running one is `cancelling` until its worker ends it. Needs an operator.

        Raises NotFound, Conflict.
        """
        async with self._transaction("run.cancel", Role.OPERATOR, noun="run", id=run_id) as session:
            await runs.cancel(session, RunId(run_id), by=self.who.name, reason=reason)

    async def undoable(self, run_id: str) -> Sequence[Done]:
        """The effects of a run, what was done last first, and how it stands with undoing each. Raises NotFound,
        UnknownAgent."""
        async with self._transaction("read", Role.VIEWER, noun="run", id=run_id) as session:
            return await undo.look(session, RunId(run_id), await self._ways(session, run_id))

    async def undo(self, run_id: str, *, reason: str = "asked for") -> Sequence[Done]:
        """Have undone what a run did that is over, what was done last first, by the workers of its agent.

        How everything stands now; asking twice is asking once. Needs an operator.
        Raises NotFound, UnknownAgent, Conflict (it is not over, or did nothing that can be undone), InvalidInput.
        """
        async with self._transaction("run.undo", Role.OPERATOR, noun="run", id=run_id) as session:
            ways = await self._ways(session, run_id)
            known = self.who.authenticated
            return await undo.request(
                session, RunId(run_id), ways, by=self.who.name, authenticated=known, reason=reason
            )

    async def _ways(self, session: Session, run_id: str) -> Mapping[str, Way]:
        """How the tools of the run's agent are undone, as this process knows it."""
        name = (await runs.identity(session, RunId(run_id)))["agent"]
        agent = self.agents.get(name)
        if agent is None:
            raise UnknownAgent(
                f"Run {run_id} is of agent {name!r}, which is not loaded here, so its undos are not known: "
                "add it to SUREFOOT_AGENTS."
            )
        return agent.undo_ways


def _due(not_before: datetime | None, delay_s: float | None) -> datetime | None:
    """Raises InvalidInput."""
    if delay_s is None:
        return not_before
    if not_before is not None:
        raise InvalidInput("Both not_before and delay_s are given: give one of them.")
    if not 0 <= delay_s <= _DELAY_S_MAX:
        raise InvalidInput(f"delay_s is from 0 to {_DELAY_S_MAX:g} seconds, and this is {delay_s:g}: correct it.")
    return SystemClock().now() + timedelta(seconds=delay_s)
