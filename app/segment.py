"""Carry a run forward by one segment: begin, rebuild, run the agent, end.

The body of the engine's workflow. Begin is deliberately not a step, so that it runs at every execution; what shapes
the sequence of steps was frozen by the segment's first execution.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    RunUsage,
    ToolApproved,
    ToolDenied,
    UsageLimits,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.run import AgentRun
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import to_jsonable_python

from app.interrupts import Interrupts
from steps import DurableAgent
from steps.bench import Bench
from steps.clock import Clock
from steps.durability import ModelFailed, SurefootDurability
from steps.effects import Effects
from steps.journal import Journal
from steps.reading import artifact_tools, specs_of
from steps.seat import Seat, Turns
from steps.toolset import DurableToolset, ToolRaised
from transactions import (
    ActionId,
    Cancelling,
    Diverged,
    Fenced,
    RunId,
    RunState,
    SurefootError,
    diverging,
    failpoint,
    messages,
    number_done,
    segments,
    storable_reason,
    until_committed,
)
from transactions.readers import Serving
from transactions.segments import Begun, Ending
from transactions.waits import Wait

_log = logging.getLogger("surefoot.segment")
_USAGE = TypeAdapter(RunUsage)


@dataclass(frozen=True, slots=True)
class Segments:
    """Executes segments with what the process has."""

    bench: Bench
    effects: Effects
    interrupts: Interrupts
    clock: Clock
    stalls_max: int
    draining: Callable[[], bool]
    serving: Serving
    ended: Callable[[], None]

    async def execute(self, run_id: str, n: int) -> None:
        """One execution of segment `n`. Returns nothing: our tables are the record."""
        try:
            begun = await self._begin(RunId(run_id), n)
            if begun is not None:
                await _Execution(self, begun).carry_forward()
        except Fenced as fenced:
            self.bench.on_fenced(str(fenced))
            raise

    async def _begin(self, run_id: RunId, n: int) -> Begun | None:
        async def begin() -> Begun | None:
            async with self.bench.database.all_tenants("segment.begin") as session:
                return await segments.begin(
                    session,
                    run_id=run_id,
                    n=n,
                    worker_id=self.bench.worker_id,
                    serving=self.serving,
                    stalls_max=self.stalls_max,
                )

        return await until_committed(begin, self.bench.still_mine)


class _Tools(AbstractCapability[Any]):
    """Puts this execution's toolset around whatever tools the agent has."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return DurableToolset(toolset, self._seat)


class _Execution:
    """One execution of one segment, from its begin to the commit that ends it."""

    def __init__(self, parts: Segments, begun: Begun) -> None:
        self._parts = parts
        self._begun = begun
        self._bench = parts.bench
        self._agent: DurableAgent[Any] = parts.bench.agents[begun.agent]
        self._turns = Turns(base=begun.frozen["turn_base"], artifacts=begun.frozen.get("artifacts", False))
        self._usage = _USAGE.validate_python(begun.frozen["usage"])
        self._stored = begun.stored
        self._journal = Journal(
            parts.bench.database,
            begun.execution,
            clock=parts.clock,
            still_mine=parts.bench.still_mine,
            on_fenced=parts.bench.on_fenced,
        )

    async def carry_forward(self) -> None:
        """Run the agent until it finishes, waits, fails, hands on or is cancelled, and commit that."""
        run_id = self._begun.execution.run_id
        try:
            ending = await self._parts.interrupts.unless_cancelling(run_id, self._run_agent())
            if ending.state is not RunState.QUEUED:  # which it may be earlier than before: it hands on what is left
                self._journal.check_end(self._begun.steps)
        except Diverged as diverged:
            await self._diverge(diverged)
            return
        except Cancelling:
            ending = self._ending(RunState.CANCELLED)
        except (
            ModelFailed,
            ToolRaised,
            UsageLimitExceeded,
            AgentRunError,
            UserError,
            SurefootError,
            ValueError,
        ) as error:
            _log.warning("run %s failed: %s", run_id, error)
            ending = self._ending(RunState.FAILED, reason=storable_reason(str(error)))
        except Exception as error:
            _log.exception("run %s failed", run_id)
            ending = self._ending(RunState.FAILED, reason=storable_reason(f"{type(error).__name__}: {error}"))
        await self._journal.flush()
        await self._end(ending)

    async def _run_agent(self) -> Ending:
        history = ModelMessagesTypeAdapter.validate_python(self._begun.history)
        run = self._bench.run(
            {
                "run_id": self._begun.execution.run_id,
                "tenant": self._begun.execution.tenant,
                "agent": self._begun.agent,
                "input": self._begun.input,
                "principal": self._begun.principal,
            }
        )
        deps = await until_committed(lambda: self._agent.make_deps(run), self._bench.still_mine)
        built_in = artifact_tools(run)
        seat = Seat(
            self._bench,
            self._parts.effects,
            self._journal,
            self._begun.execution,
            run,
            self._agent.name,
            {**specs_of(built_in), **self._agent.specs},
            self._turns,
            self._agent.limits.inline_wait_s,
            built_in,
            self._agent.limits.result_inline_bytes,
        )
        agent = self._agent.agent
        run_id = f"{self._begun.execution.run_id}:{self._begun.execution.segment}"
        async with agent.iter(
            None if history else self._agent.prompt_for(self._begun.input),
            message_history=history or None,
            deferred_tool_results=self._answers(),
            output_type=[agent.output_type, DeferredToolRequests],
            capabilities=[_Tools(seat), SurefootDurability(self._journal, run_id=run_id)],
            deps=deps,
            usage=self._usage,
            usage_limits=UsageLimits(request_limit=self._agent.limits.requests_max),
        ) as agent_run:
            return await self._drive(agent_run)

    def _answers(self) -> DeferredToolResults | None:
        answers = cast("dict[str, dict[str, Any]]", self._begun.frozen["answers"])
        if not answers:
            return None
        return DeferredToolResults(
            approvals={
                call_id: ToolApproved() if answer["go"] else ToolDenied(answer["reason"])
                for call_id, answer in answers.items()
            }
        )

    async def _drive(self, agent_run: AgentRun[Any, Any]) -> Ending:
        """Node by node: the messages of a turn are committed before its tools run."""
        async for node in agent_run:
            if Agent.is_call_tools_node(node):
                new = any(message is node.model_response for message in agent_run.new_messages())
                self._turns.begin(node.model_response, new=new)
                if new:
                    await self._record_turn(agent_run.new_messages(), node.model_response)
            elif Agent.is_model_request_node(node) and self._boundary():
                return self._ending(RunState.QUEUED, [*agent_run.new_messages(), node.request])
        result = agent_run.result
        assert result is not None, "a run that was not left early has a result"
        if isinstance(result.output, DeferredToolRequests):
            return replace(self._ending(RunState.WAITING, result.new_messages()), waits=_waits(result.output))
        output = cast(JsonValue, to_jsonable_python(result.output))
        return replace(self._ending(RunState.COMPLETED, result.new_messages()), output=output)

    def _boundary(self) -> bool:
        """Whether this segment hands on before the next model request. Never before its first turn.

        While it replays it does so only where the first execution did: what comes after is on record already.
        """
        turns = self._turns.responses
        wanted = self._parts.draining() or self._parts.interrupts.asked(self._begun.execution.run_id)
        replays = self._turns.number < self._begun.turns
        return turns > 0 and (turns >= self._begun.frozen["turns_max"] or (wanted and not replays))

    def _ending(self, state: Any, new: Sequence[ModelMessage] = (), *, reason: str | None = None) -> Ending:
        usage = cast(JsonValue, _USAGE.dump_python(self._usage, mode="json"))
        return Ending(
            state=state,
            turns=self._turns.number,
            usage=usage,
            reason=reason,
            messages=self._fresh(new),
            first_seq=self._begun.frozen["cut"] + self._stored,
        )

    def _fresh(self, new: Sequence[ModelMessage]) -> list[JsonValue]:
        """Those of this segment's messages that are not stored yet, as JSON."""
        dumped = ModelMessagesTypeAdapter.dump_python(list(new), mode="json")
        return cast("list[JsonValue]", dumped)[self._stored :]

    # Commits of the loop itself.

    async def _record_turn(self, new: list[ModelMessage], response: ModelResponse) -> None:
        """The commit of a turn: its messages, its call, its usage, its number. A replay finds it done."""
        fresh = self._fresh(new)
        if not fresh:
            return
        execution = self._begun.execution
        usage = cast(JsonValue, _USAGE.dump_python(self._usage, mode="json"))

        async def record() -> bool:
            async with self._bench.database.transaction("segment.turn", execution.tenant) as session:
                first = self._begun.frozen["cut"] + self._stored
                await messages.append(session, execution, first_seq=first, messages=fresh)
                await messages.record_call(
                    session,
                    execution,
                    turn=self._turns.number,
                    model=response.model_name or "unknown",
                    input_tokens=response.usage.input_tokens,
                    output_tokens=response.usage.output_tokens,
                )
                told = await segments.record_turn(
                    session, execution, turns=self._turns.number, usage=usage, phase=self._phase(response)
                )
                return await number_done(session, execution, *told)

        goes_on = await until_committed(record, self._bench.still_mine)
        self._stored += len(fresh)
        if not goes_on:
            raise Cancelling(f"run {execution.run_id} is being cancelled: none of its calls is begun")

    def _phase(self, response: ModelResponse) -> str | None:
        """That of the first call whose tool names one."""
        specs = (self._agent.specs.get(call.tool_name) for call in response.tool_calls)
        return next((spec.phase for spec in specs if spec is not None and spec.phase is not None), None)

    async def _end(self, ending: Ending) -> None:
        execution = self._begun.execution

        async def end() -> None:
            async with self._bench.database.transaction("segment.end", execution.tenant) as session:
                await segments.end(session, execution, ending)

        failpoint("segment.before_end")
        await until_committed(end, self._bench.still_mine)
        self._bench.wakeups.poke("outbox")  # that commit may tell the run's state
        self._parts.ended()

    async def _diverge(self, diverged: Diverged) -> None:
        """Told once: what goes on, goes on in another segment."""
        execution = self._begun.execution
        await self._journal.flush()

        async def end() -> str | None:
            async with self._bench.database.transaction("segment.diverge", execution.tenant) as session:
                serving, most = self._parts.serving, self._parts.stalls_max
                return await diverging.end(session, execution, diverged, serving=serving, divergences_max=most)

        try:
            words = await until_committed(end, self._bench.still_mine)
        except Cancelling:
            await self._end(self._ending(RunState.CANCELLED))
            return
        if words is not None:
            _log.error("run %s: %s", execution.run_id, words)
        self._bench.wakeups.poke("outbox")
        self._parts.ended()


def _waits(requests: DeferredToolRequests) -> list[Wait]:
    """One wait for each call that deferred; one that only stands behind another is settled from the start."""
    found: list[Wait] = []
    for call in requests.approvals:
        why = requests.metadata[call.tool_call_id]
        found.append(
            Wait(
                kind=why["kind"],
                action_id=None if why["action_id"] is None else ActionId(why["action_id"]),
                call_id=call.tool_call_id,
                position=why["position"],
                outcome="go" if why["kind"] == "follows" else None,
                call=why["call"],
            )
        )
    return found
