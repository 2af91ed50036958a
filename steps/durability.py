"""Surefoot as a durability engine of pydantic-ai, on its public surface: model and MCP calls go through the journal."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalOperationNamer,
    RoleBasedOperationConfig,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

from steps.journal import Done, Journal

D = TypeVar("D")
_RETRIES_MAX = 4
_RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ModelFailed(Exception):
    """The model could not be asked, after the retries that its error allows. Recorded as it was first seen."""


class JournalBackend(CallableOperationBackend[None]):
    """Runs each operation of pydantic-ai as one step of the journal."""

    def __init__(self, journal: Journal, agent_name: str) -> None:
        super().__init__(
            namer=JournalOperationNamer(agent_name),
            config=RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None),
        )
        self._journal = journal

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,  # noqa: ARG002  the name says all we need of it
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],  # noqa: ARG002  a journal finds a step by its place, not by a hash
        config: None,  # noqa: ARG002
    ) -> object:
        async def step() -> Done:
            return Done(await _outcome(body))

        outcome = cast("dict[str, Any]", await self._journal.step(name, step))
        if "error" in outcome:
            raise ModelFailed(outcome["error"])
        return outcome["ok"]


async def _outcome(body: Callable[[], Awaitable[object]]) -> JsonValue:
    for retry in range(_RETRIES_MAX + 1):
        try:
            return {"ok": cast(JsonValue, await body())}
        except Exception as error:
            if retry == _RETRIES_MAX or not _is_passing(error):
                return {"error": f"{type(error).__name__}: {error}"}
        await asyncio.sleep(min(2**retry, 30) * random.uniform(0.5, 1.0))  # noqa: S311  jitter, not a secret
    raise AssertionError("the last retry returns")


def _is_passing(error: Exception) -> bool:
    if isinstance(error, ModelHTTPError):
        return error.status_code in _RETRY_STATUS
    return isinstance(error, ModelAPIError | ConnectionError | TimeoutError)


class SurefootDurability(BaseDurabilityCapability[D]):
    """Bound to one execution of a segment; `run_id` names this segment's agent run."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Surefoot",
        durable_unit_noun="step",
        durable_container_noun="segment",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset({"mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key="surefoot_engine",
    )

    def __init__(self, journal: Journal, *, run_id: str) -> None:
        super().__init__()
        self._journal = journal
        self._run_id = run_id

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        return JournalBackend(self._journal, self.name)

    @property
    def in_durable_context(self) -> bool:
        return True

    def get_default_run_id(self) -> str | None:
        return self._run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id)
