"""What an approver changes: the arguments that the call has then, and what its approval is bound to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.exceptions import ModelRetry

from steps.bench import run_of
from steps.durable import DurableAgent
from steps.gate import Gate
from steps.spec import Spec
from transactions import ActionId, ArtifactStore, Database, InvalidInput, Run, Session, TransactionTooLong, Tx, failures
from transactions.approvals import Question

_ARGUMENTS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_log = logging.getLogger("surefoot.editing")


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one call, with the deps of its run; `made` before the transaction that applies it."""

    agent: DurableAgent[Any]
    spec: Spec
    run: Run
    deps: Any
    action_id: ActionId
    request: Mapping[str, JsonValue]
    change: JsonValue
    limit_s: float

    @classmethod
    async def made(
        cls,
        database: Database,
        store: ArtifactStore,
        agent: DurableAgent[Any],
        *,
        identity: Mapping[str, Any],
        action: Mapping[str, Any],
        change: JsonValue,
    ) -> "Edit":
        """identity: the row of `runs.identity`; action: that of the action. Raises InvalidInput."""
        spec = agent.specs.get(action["tool"])
        if spec is None or spec.approval is None:
            raise InvalidInput(
                f"{agent.name} of version {agent.version} asks nobody about {action['tool']}, so what it does "
                "cannot be changed here: reject it, with the reason."
            )
        if spec.key is not None:
            raise InvalidInput(
                f"{spec.name} goes by a business key, so what it does cannot be changed: reject it, with the reason."
            )
        run = run_of(database, store, identity)
        deps = await agent.make_deps(run)
        action_id, limit_s = ActionId(action["action_id"]), database.limits.transaction_s
        return cls(agent, spec, run, deps, action_id, action["request"], change, limit_s)

    async def question(self, session: Session) -> Question:
        """What is approved instead, in the transaction that approves it. Raises InvalidInput."""
        assert self.spec.approval is not None
        tx = Tx(self.deps, self.run, self.action_id, session)
        try:
            if self.spec.approval.edit is not None:
                changed = {**self.request, **await self._edited(tx, self.spec.approval.edit)}
            elif isinstance(self.change, dict):
                changed = {**self.request, **self.change}
            else:
                raise InvalidInput(f"Give the arguments of {self.spec.name} to change, as a JSON object.")
            request = _ARGUMENTS.dump_python(dict(changed), mode="json")
            if unknown := sorted(request.keys() - self.spec.parameters):
                raise InvalidInput(f"{self.spec.name} has no argument {', '.join(unknown)}: leave it out.")
            self.spec.parse(request)
            return await Gate(tx, self.spec, self.agent).asked(cast(JsonValue, request))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidInput(f"{self.spec.name} does not take that ({where}: {first['msg']}): correct it.") from error
        except (ModelRetry, ValueError) as error:
            raise InvalidInput(f"{self.spec.name} cannot be changed so: {error}") from error
        except (LookupError, TypeError, AttributeError) as error:  # of the tool's own, at a shape it did not expect
            _log.warning("editing %s", self.action_id, exc_info=error)
            raise InvalidInput(
                f"{self.spec.name} cannot be changed so ({failures.words(error)}): give what it lets you edit."
            ) from error

    async def _edited(self, tx: Tx[Any], edit: Callable[..., Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any]:
        """What the tool's own `edit` makes of it, in the time that a transaction has."""
        try:
            async with asyncio.timeout(self.limit_s):
                return await edit(tx, self.change, **self.spec.parse(self.request))
        except TimeoutError as error:
            raise TransactionTooLong(
                f"Changing what {self.spec.name} does took over {self.limit_s:g} s, and nothing was decided: "
                "try again, or change less."
            ) from error
