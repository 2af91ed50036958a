"""What an approver changes: the arguments that the call has then, and what its approval is bound to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.exceptions import ModelRetry

from steps.bench import run_of
from steps.durable import DurableAgent
from steps.gate import Gate
from steps.spec import Spec
from transactions import ActionId, ArtifactStore, Database, InvalidInput, Run, Session, Tx
from transactions.approvals import Question

_ARGUMENTS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


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
        spec = agent.specs[action["tool"]]
        if spec.key is not None:
            raise InvalidInput(
                f"{spec.name} goes by a business key, so what it does cannot be changed: reject it, with the reason."
            )
        run = run_of(database, store, identity)
        deps = await agent.make_deps(run)
        return cls(agent, spec, run, deps, ActionId(action["action_id"]), action["request"], change)

    async def question(self, session: Session) -> Question:
        """What is approved instead, in the transaction that approves it. Raises InvalidInput."""
        assert self.spec.approval is not None
        tx = Tx(self.deps, self.run, self.action_id, session)
        try:
            if self.spec.approval.edit is not None:
                arguments = self.spec.parse(self.request)
                changed = await self.spec.approval.edit(tx, self.change, **arguments)
            elif isinstance(self.change, dict):
                changed = {**self.request, **self.change}
            else:
                raise InvalidInput(f"Give the arguments of {self.spec.name} to change, as a JSON object.")
            request = _ARGUMENTS.dump_python(dict(changed), mode="json")
            if unknown := sorted(request.keys() - self.spec.parameters):
                raise InvalidInput(f"{self.spec.name} has no argument {', '.join(unknown)}: leave it out.")
            self.spec.parse(request)
            question = await Gate(tx, self.spec, self.agent.version).question(cast(JsonValue, request))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidInput(f"{self.spec.name} does not take that ({where}: {first['msg']}): correct it.") from error
        except (ModelRetry, ValueError) as error:
            raise InvalidInput(f"{self.spec.name} cannot be changed so: {error}") from error
        if question is None:
            raise InvalidInput(f"Changed so, {self.spec.name} needs no approval: reject it, and say what to ask for.")
        return question
