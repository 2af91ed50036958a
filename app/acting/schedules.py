"""Schedules: runs that start by the clock."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.acting.base import Base
from steps import DurableAgent
from transactions import Role, schedules
from transactions.schedules import Missed, Overlap, Schedule


class ScheduleActs(Base):
    """Each but the first needs an operator. Its runs are started as those of whoever set it, who must still be one."""

    async def schedules(self) -> Sequence[Mapping[str, Any]]:
        """By name: what was set, when it is due next, and what became of it the last time."""
        async with self._transaction("read", Role.VIEWER) as session:
            return await schedules.page(session, self.tenant)

    async def set_schedule(
        self,
        name: str,
        agent: DurableAgent[Any] | str,
        input: object,
        *,
        cron: str,
        time_zone: str = "UTC",
        priority: int = 0,
        missed: Missed = "last",
        overlap: Overlap = "skip",
    ) -> None:
        """Have runs of an agent start by the clock, or change that; see `transactions.schedules.Schedule`.

        cron: five fields, such as '0 9 * * MON-FRI', by the clock of `time_zone`, such as Europe/Berlin.
        Raises UnknownAgent, InvalidInput.
        """
        self.who.need(Role.OPERATOR)
        known = self._known(agent)
        schedule = Schedule(name, known.name, known.parse_input(input), cron, time_zone, priority, missed, overlap)
        async with self._transaction("schedule.set", Role.OPERATOR) as session:
            await schedules.put(session, self.tenant, schedule, by=self.who.name)

    async def remove_schedule(self, name: str) -> None:
        """It starts nothing any more. Raises NotFound."""
        async with self._transaction("schedule.remove", Role.OPERATOR) as session:
            await schedules.remove(session, self.tenant, name, by=self.who.name)

    async def pause_schedule(self, name: str) -> None:
        """It starts nothing until it is resumed. Raises NotFound."""
        async with self._transaction("schedule.pause", Role.OPERATOR) as session:
            await schedules.pause(session, self.tenant, name, by=self.who.name)

    async def resume_schedule(self, name: str) -> None:
        """From now on. Raises NotFound."""
        async with self._transaction("schedule.resume", Role.OPERATOR) as session:
            await schedules.resume(session, self.tenant, name, by=self.who.name)
