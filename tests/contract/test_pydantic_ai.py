"""What segments rely on in pydantic-ai 2.68.0, each at its smallest: no database, a scripted model."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    RunUsage,
    ToolApproved,
    ToolDenied,
    UsageLimits,
)
from pydantic_ai.capabilities import AbstractCapability
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
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.exceptions import ApprovalRequired, UsageLimitExceeded, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset


def scripted(*responses: Sequence[str]) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
    """A model that calls `work` once for each word of its next response, and ends with the text `done`."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        if turn == len(responses):
            return ModelResponse(parts=[TextPart("done")])
        calls = [ToolCallPart("work", {"word": word}, tool_call_id=f"{turn}.{word}") for word in responses[turn]]
        return ModelResponse(parts=calls)

    return answer


@dataclass
class Seen:
    """What the wrapper saw: which calls came, and in which of them the call is to defer (again)."""

    calls: list[str] = field(default_factory=list[str])
    defer: set[str] = field(default_factory=set[str])


@dataclass
class Watched(WrapperToolset[Any]):
    seen: Seen

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        assert ctx.tool_call_id is not None
        self.seen.calls.append(ctx.tool_call_id)
        if ctx.tool_call_id in self.seen.defer:
            raise ApprovalRequired(metadata={"call": ctx.tool_call_id})
        return await super().call_tool(name, tool_args, ctx, tool)


class Wrapping(AbstractCapability[Any]):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return Watched(toolset, self._seen)


def make_agent(*responses: Sequence[str], sequential: bool = True) -> Agent[None, str]:
    tools = FunctionToolset[None](id="contract")

    async def work(ctx: RunContext[None], word: str) -> str:
        await asyncio.sleep(0)
        return word.upper()

    tools.add_function(work, takes_ctx=True, sequential=sequential)
    return Agent(FunctionModel(scripted(*responses), model_name="scripted"), name="contract", toolsets=[tools])


async def segment(
    agent: Agent[None, str],
    seen: Seen,
    history: list[ModelMessage] | None = None,
    answers: dict[str, Any] | None = None,
    *,
    usage: RunUsage | None = None,
) -> Any:
    return await agent.run(
        None if history else "please",
        message_history=through_json(history) if history else None,
        deferred_tool_results=DeferredToolResults(approvals=answers) if answers else None,
        output_type=[str, DeferredToolRequests],
        capabilities=[Wrapping(seen)],
        usage=usage,
    )


def through_json(messages: list[ModelMessage]) -> list[ModelMessage]:
    """As they come back from the database."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def returned(messages: Sequence[ModelMessage]) -> list[tuple[str, Any]]:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [(part.tool_call_id, part.content) for part in parts if isinstance(part, ToolReturnPart)]


# Capabilities of one run.


async def test_a_capability_given_to_one_run_wraps_its_tools_and_no_other_run() -> None:
    agent = make_agent(["a"])
    first, second = Seen(), Seen()
    await segment(agent, first)
    await segment(agent, second)
    await agent.run("please")
    assert first.calls == second.calls == ["0.a"]


async def test_a_durability_capability_on_the_agent_is_found() -> None:
    plain = make_agent(["a"])
    assert BaseDurabilityCapability.from_agent(plain) is None
    other = Agent(plain.model, name="other", capabilities=[DBOSDurability()])
    assert BaseDurabilityCapability.from_agent(other) is not None


async def test_parallel_calls_reach_the_wrapper_in_the_order_of_the_response() -> None:
    seen = Seen()
    await segment(make_agent(["c", "a", "b"], sequential=False), seen)
    assert seen.calls == ["0.c", "0.a", "0.b"]


# Deferring and resuming.


@pytest.mark.parametrize("words", ["ab", "abc"])
async def test_calls_of_one_response_defer_together_and_resume_in_their_order(words: str) -> None:
    agent = make_agent(list(words))
    ids = [f"0.{word}" for word in words]
    seen = Seen(defer=set(ids))
    waiting = await segment(agent, seen)
    assert isinstance(waiting.output, DeferredToolRequests)
    assert [call.tool_call_id for call in waiting.output.approvals] == ids
    assert waiting.output.metadata == {call: {"call": call} for call in ids}
    assert seen.calls == ids

    resumed = Seen()
    done = await segment(agent, resumed, waiting.all_messages(), {call: ToolApproved() for call in ids})
    assert done.output == "done"
    assert resumed.calls == ids
    assert returned(done.all_messages()) == [(f"0.{word}", word.upper()) for word in words]


async def test_a_call_that_did_not_defer_is_not_called_again() -> None:
    agent = make_agent(["a", "b", "c"])
    waiting = await segment(agent, Seen(defer={"0.b", "0.c"}))
    resumed = Seen()
    done = await segment(agent, resumed, waiting.all_messages(), {"0.b": ToolApproved(), "0.c": ToolApproved()})
    assert resumed.calls == ["0.b", "0.c"]
    assert sorted(returned(done.all_messages())) == [("0.a", "A"), ("0.b", "B"), ("0.c", "C")]


async def test_a_denied_call_never_reaches_the_wrapper_and_the_model_is_told_why() -> None:
    agent = make_agent(["a", "b"])
    waiting = await segment(agent, Seen(defer={"0.a", "0.b"}))
    resumed = Seen()
    answers = {"0.a": ToolDenied("not today"), "0.b": ToolDenied("the one before it was refused")}
    done = await segment(agent, resumed, waiting.all_messages(), answers)
    assert resumed.calls == []
    assert returned(done.all_messages()) == [("0.a", "not today"), ("0.b", "the one before it was refused")]


@pytest.mark.parametrize("segments", [2, 3])
async def test_calls_may_defer_again_when_they_are_resumed(segments: int) -> None:
    """An approved effect that does not settle in time: the calls of one response are resumed over several segments."""
    agent = make_agent(["a", "b", "c"])
    left = ["0.a", "0.b", "0.c"]
    result = await segment(agent, Seen(defer=set(left)))
    for _ in range(segments):
        seen = Seen(defer=set(left[1:]))
        result = await segment(agent, seen, result.all_messages(), {call: ToolApproved() for call in left})
        assert seen.calls == left
        left.pop(0)
        if left:
            assert [call.tool_call_id for call in result.output.approvals] == left
    if left:
        result = await segment(agent, Seen(), result.all_messages(), {call: ToolApproved() for call in left})
    assert result.output == "done"
    assert returned(result.all_messages()) == [("0.a", "A"), ("0.b", "B"), ("0.c", "C")]


async def test_a_run_may_defer_in_one_response_after_another() -> None:
    agent = make_agent(["a"], ["b", "c"], ["d"])
    result = await segment(agent, Seen(defer={"0.a"}))
    for call_ids, next_ids in ((["0.a"], ["1.b", "1.c"]), (["1.b", "1.c"], ["2.d"]), (["2.d"], [])):
        seen = Seen(defer=set(next_ids))
        result = await segment(agent, seen, result.all_messages(), {call: ToolApproved() for call in call_ids})
        assert seen.calls == [*call_ids, *next_ids]
    assert result.output == "done"
    assert returned(result.all_messages()) == [("0.a", "A"), ("1.b", "B"), ("1.c", "C"), ("2.d", "D")]


# A turn boundary, and what is new.


async def up_to_boundary(agent: Agent[None, str], turns: int) -> list[ModelMessage]:
    """The messages of a run that is left before its next model request, with the request that was not sent."""
    async with agent.iter("please", output_type=[str, DeferredToolRequests]) as run:
        responses = 0
        async for node in run:
            if Agent.is_call_tools_node(node):
                responses += 1
            if Agent.is_model_request_node(node) and responses == turns:
                return [*run.new_messages(), node.request]
    raise AssertionError("the run ended before its boundary")


async def test_a_run_left_at_a_turn_boundary_goes_on_from_the_request_that_was_not_sent() -> None:
    asked: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        return scripted(["a"], ["b"])(messages, info)

    agent = make_agent()
    agent.model = FunctionModel(model, model_name="scripted")
    undisturbed = await agent.run("please")
    once = list(asked)
    asked.clear()
    history = await up_to_boundary(agent, 1)
    assert isinstance(history[-1], ModelRequest)
    seen = Seen()
    result = await segment(agent, seen, history)
    assert result.output == undisturbed.output
    assert asked == once
    assert seen.calls == ["1.b"]
    assert shape(result.all_messages()) == shape(undisturbed.all_messages())
    assert shape(result.new_messages()) == shape(undisturbed.all_messages())[len(history) :]


def shape(messages: Sequence[ModelMessage]) -> list[tuple[str, list[str]]]:
    return [(message.kind, [part.part_kind for part in message.parts]) for message in messages]


async def responses_of(run: Any) -> list[bool]:
    """For each response whose calls are worked on: whether it is one of the run's new messages, by identity."""
    found: list[bool] = []
    async with run as agent_run:
        async for node in agent_run:
            if Agent.is_call_tools_node(node):
                found.append(any(message is node.model_response for message in agent_run.new_messages()))
    return found


async def test_a_new_response_is_among_the_new_messages_by_identity_and_a_resumed_one_is_not() -> None:
    agent = make_agent(["a"], ["b"])
    assert await responses_of(agent.iter("please")) == [True, True, True]
    waiting = await segment(agent, Seen(defer={"0.a"}))
    resumed = agent.iter(
        None,
        message_history=through_json(waiting.all_messages()),
        deferred_tool_results=DeferredToolResults(approvals={"0.a": ToolApproved()}),
    )
    assert await responses_of(resumed) == [False, True, True]


@dataclass
class Recorded(BaseDurabilityCapability[Any]):
    """A durability engine on the public surface: every operation is recorded as JSON, and found by its place."""

    run_id: str
    journal: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])
    ran: list[str] = field(default_factory=list[str])

    engine_spec = DurabilityEngineSpec(
        engine_name="Contract",
        durable_unit_noun="step",
        durable_container_noun="segment",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset({"mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key="contract",
    )

    def __post_init__(self) -> None:
        super().__init__()
        self.position = 0

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        return Backend(self)

    @property
    def in_durable_context(self) -> bool:
        return True

    def get_default_run_id(self) -> str | None:
        return self.run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id)


class Backend(CallableOperationBackend[None]):
    def __init__(self, owner: Recorded) -> None:
        super().__init__(
            namer=JournalOperationNamer("contract"),
            config=RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None),
        )
        self._owner = owner

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        position = self._owner.position
        self._owner.position += 1
        if position == len(self._owner.journal):
            self._owner.ran.append(name)
            self._owner.journal.append((name, json.loads(json.dumps(await body()))))
        recorded_name, value = self._owner.journal[position]
        assert recorded_name == name
        return value


async def test_a_model_request_is_one_operation_recorded_as_json_and_replayed_without_the_model() -> None:
    agent = make_agent(["a"], ["b"])
    first = Recorded("run:0")
    undisturbed = await agent.run("please", capabilities=[first])
    assert first.ran == ["contract__model.request"] * 3
    assert undisturbed.run_id == "run:0"

    def never(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise AssertionError("the model is asked at a replay")

    agent.model = FunctionModel(never, model_name="scripted")
    again = Recorded("run:0", journal=first.journal)
    replayed = await agent.run("please", capabilities=[again])
    assert again.ran == []
    assert replayed.output == undisturbed.output
    assert returned(replayed.all_messages()) == returned(undisturbed.all_messages())


async def test_new_messages_are_told_by_the_run_id_so_each_segment_needs_its_own() -> None:
    agent = make_agent(["a"], ["b"])
    history = await up_to_boundary_as("run:0", agent)
    own = await agent.run(None, message_history=through_json(history), capabilities=[Recorded("run:1")])
    assert len(own.all_messages()) - len(own.new_messages()) == len(history)
    with pytest.raises(UserError, match="already appears"):
        await agent.run(None, message_history=through_json(history), capabilities=[Recorded("run:0")])


async def up_to_boundary_as(run_id: str, agent: Agent[None, str]) -> list[ModelMessage]:
    async with agent.iter("please", capabilities=[Recorded(run_id)]) as run:
        responses = 0
        async for node in run:
            responses += Agent.is_call_tools_node(node)
            if Agent.is_model_request_node(node) and responses == 1:
                return [*run.new_messages(), node.request]
    raise AssertionError("the run ended before its boundary")


# Usage.


async def test_the_usage_object_handed_in_is_changed_in_place_also_when_a_limit_ends_the_run() -> None:
    agent = make_agent(["a"], ["b"])
    usage = RunUsage(requests=5)
    await segment(agent, Seen(), usage=usage)
    assert usage.requests == 8
    usage = RunUsage(requests=5)
    with pytest.raises(UsageLimitExceeded):
        await agent.run("please", usage=usage, usage_limits=UsageLimits(request_limit=7))
    assert usage.requests == 7
