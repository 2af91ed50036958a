"""Application versions, and what a person makes of a run's way: hold it, move it to another version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.acting.base import Base, told_in_words
from transactions import DEFAULT_TENANT, Forbidden, Role, RunId, RunState, SurefootError, steering, versions

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Moved:
    """`run_ids`: those that were moved; `refused`: the others, each with the reason."""

    run_ids: Sequence[RunId]
    refused: Mapping[RunId, str]


class VersionActs(Base):
    async def versions(self, *, limit: int = 200) -> Sequence[Mapping[str, Any]]:
        """A row for each agent of each application version, the newest version first: of the whole deployment.

        `runs` and `bound_runs`, which the current version cannot carry on, are the tenant's.
        """
        async with self._transaction("read", Role.VIEWER) as session:
            return await versions.page(session, self.tenant, limit=limit)

    async def use_version(self, version: str) -> str:
        """Make a version current again, by its name or its number; its name. What waits goes on there, where it can.

        Needs an operator of tenant default, for it is the deployment's. Raises NotFound.
        """
        self.who.need(Role.OPERATOR)
        if self.tenant != DEFAULT_TENANT:
            raise Forbidden(f"This is the deployment's, and {self.who.name} is of tenant {self.tenant}: ask its admin.")
        async with told_in_words(), self.database.all_tenants("version.use") as session:
            return await versions.use(session, version, by=self.who.name)

    async def hold(self, run_id: str, *, reason: str) -> RunState:
        """Put a run aside until it is released; one that is running still is, until its next boundary.

        Needs an operator. Raises NotFound, Conflict (it is held, or over), InvalidInput (no reason).
        """
        async with self._transaction("run.hold", Role.OPERATOR, noun="run", id=run_id) as session:
            return await steering.hold(session, RunId(run_id), by=self.who.name, reason=reason)

    async def move(self, run_id: str, *, to: str | None = None) -> str | None:
        """Have a run carried on by one application version alone, from its next boundary on; None: by the newest again.

        Which version has it from then on; None: none that lives can, and it waits. One that is held for want of a
        version goes on. Needs an operator. Raises NotFound, Conflict (it is over, or cannot be read there).
        """
        async with self._transaction("run.move", Role.OPERATOR, noun="run", id=run_id) as session:
            return await steering.move(session, RunId(run_id), to=to, by=self.who.name)

    async def move_all(self, *, begun_by: str, to: str | None = None) -> Moved:
        """`move` for every run of the tenant that is not over and that this version began last, each by itself.

        Needs an operator. Raises NotFound (a version).
        """
        moved: list[RunId] = []
        refused: dict[RunId, str] = {}
        after: RunId | None = None
        while True:
            async with self._transaction("read", Role.OPERATOR) as session:
                if to is not None:
                    await versions.find(session, to)
                found = await steering.begun_by(session, self.tenant, begun_by, after=after, limit=_PAGE)
            for run_id in found:
                try:
                    await self.move(run_id, to=to)
                    moved.append(run_id)
                except SurefootError as error:  # each by itself: what was moved is, whatever becomes of the others
                    refused[run_id] = str(error)
            if not found:
                return Moved(moved, refused)
            after = found[-1]
