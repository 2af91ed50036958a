"""The state of a run, as an agent's version declares it: which one it writes, and which older ones it can carry on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from steps.declaring import ToolError
from transactions.readers import Record


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a migration is given, and answers: the run's input, as JSON, and its model's messages, oldest first.

    Each message stays a message of its kind with the same calls; what is in it may be rewritten. A call of the last
    message that has begun already stays as it is.
    """

    input: JsonValue
    messages: Sequence[ModelMessage]


Migration = Callable[[RunRecord], RunRecord]


@dataclass(frozen=True, slots=True)
class StateVersions:
    """Made by `of`. `as_is` has `writes` in it; a migration takes a record of its number to the next one."""

    writes: int
    as_is: frozenset[int]
    migrations: Mapping[int, Migration]

    @classmethod
    def of(cls, agent: str, writes: int, reads: Iterable[int], migrate: Mapping[int, Migration]) -> "StateVersions":
        """Raises ToolError for what cannot be, with what to change."""
        as_is = frozenset({writes, *reads})
        if min(as_is | migrate.keys()) < 1:
            raise ToolError(
                f"Agent {agent}: state versions are whole numbers from 1 on, and not {sorted(as_is | migrate.keys())}."
            )
        if both := as_is & migrate.keys():
            raise ToolError(
                f"Agent {agent}: state {min(both)} is read as it is, and migrated too: take it out of one of both."
            )
        made = cls(writes, as_is, MappingProxyType(dict(migrate)))
        if lost := [state for state in migrate if not made.leads_on(state)]:
            raise ToolError(
                f"Agent {agent}: migrate[{min(lost)}] makes a record of state {min(lost) + 1}, which nothing reads or "
                f"migrates on: a function brings it to the next number, and the last one to {writes}."
            )
        return made

    def leads_on(self, state: int) -> bool:
        """Whether a migrated record of this state comes to one that is read as it is."""
        while state in self.migrations:
            state += 1
        return state in self.as_is

    @property
    def migrated(self) -> frozenset[int]:
        return frozenset(self.migrations)

    @property
    def reads(self) -> frozenset[int]:
        """All that can be carried on, as it is or by migrating."""
        return self.as_is | self.migrated

    def migrate(self, state: int, record: Record) -> Record:
        """Take a record through every migration on its way. Raises what they raise."""
        found = RunRecord(record.input, ModelMessagesTypeAdapter.validate_python(list(record.messages)))
        while state in self.migrations:
            found = self.migrations[state](found)
            state += 1
        dumped = ModelMessagesTypeAdapter.dump_python(list(found.messages), mode="json")
        return Record(found.input, cast("list[JsonValue]", dumped))
