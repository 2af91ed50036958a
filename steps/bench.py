"""What the tools of a process work with, whoever calls them: a segment or the relay."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steps.durable import DurableAgent
from transactions import ActionId, ArtifactStore, Database, Run, RunId, Session, Tenant, Tx, Wakeups, WorkerId


@dataclass(frozen=True, slots=True)
class Bench:
    """What the tools of a process work with."""

    database: Database
    agents: Mapping[str, DurableAgent[Any]]
    worker_id: WorkerId
    wakeups: Wakeups
    still_mine: Callable[[], None]
    on_fenced: Callable[[str], None]
    store: ArtifactStore = field(default_factory=ArtifactStore)

    def run(self, row: Mapping[str, Any]) -> Run:
        return run_of(self.database, self.store, row)

    def tx(self, session: Session, run: Run, deps: object, action_id: str) -> Tx[Any]:
        return Tx(deps, run, ActionId(action_id), session)


def run_of(database: Database, store: ArtifactStore, row: Mapping[str, Any]) -> Run:
    """The run of a row of `runs.identity`, for a deps factory."""
    tenant = Tenant(row["tenant"])

    async def query(sql: str, /, **parameters: object) -> Any:
        return await database.query(tenant, sql, **parameters)

    return Run(RunId(row["run_id"]), tenant, row["agent"], row["input"], row["principal"], query, store)
