"""What a business key and an undo have to look like, and what is said when they do not."""

from types import NoneType
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from steps import Action, Approval, RunLimits, ToolError, Tools, after, durable
from steps.spec import Spec
from transactions import InvalidInput, Tenant, Tx, keys
from transactions.undo import Way


class Published(BaseModel):
    number: int


class PublishedLate(Published):
    pass


def by_month(month: str, copies: int = 1) -> str:
    return f"{month}/{copies}"


def declared(key: Any, undo: Any = None, answers: Any = Published) -> Spec:
    tools = Tools[None](id="press")
    if undo == "declared":

        @tools.undo(idempotent=True)
        async def withdraw(action: Action[None], published: Published) -> None: ...

        undo = withdraw

    async def publish(action: Action[None], month: str, copies: int = 1) -> Published:
        return Published(number=1)

    publish.__annotations__["return"] = answers
    tools.effect(idempotent=True, key=key, undo=undo)(publish)
    assert set(tools.tools) == {"publish"}, "the model is offered no undo"
    return tools.specs["publish"]


def test_a_key_is_made_of_the_arguments_and_of_what_they_are_by_default() -> None:
    assert declared(by_month).key_of({"month": "2013-08"}) == "2013-08/1"
    assert declared(by_month).key_of({"month": "2013-08", "copies": 2}) == "2013-08/2"


def test_a_key_that_is_no_text_is_said() -> None:
    with pytest.raises(ToolError, match=r"^key of publish: it returned int; return the business key as text\.$"):
        declared(lambda month, copies: copies).key_of({"month": "2013-08"})


async def later(month: str, copies: int) -> str:
    return month


def count(month: str, copies: int) -> int:
    return copies


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            lambda month: month,
            r"its key takes \['month'\] and must take the tool's own parameters \['month', 'copies'\]",
        ),
        (later, "its key is async: write `def`"),
        (count, "its key returns <class 'int'>: return the business key as text"),
    ],
)
def test_a_wrong_key_is_refused_where_it_is_declared(key: Any, words: str) -> None:
    with pytest.raises(ToolError, match=f"^effect publish: {words}"):
        declared(key)


def slow(deps: None, month: str) -> None: ...


async def of_another(deps: None, year: int) -> None: ...


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (slow, "its before is not async: write `async def`"),
        (of_another, r"its before takes \['year'\] after the deps and must take the tool's own parameters \['month'\]"),
    ],
)
def test_a_wrong_before_is_refused_where_it_is_declared(before: Any, words: str) -> None:
    async def save(tx: Tx[None], month: str) -> None: ...

    with pytest.raises(ToolError, match=f"^transaction save: {words}"):
        Tools[None](id="press").transaction(before=before)(save)


@pytest.mark.parametrize("answers", [Published, PublishedLate])
def test_an_undo_takes_what_its_effect_answers(answers: Any) -> None:
    undo = declared(None, "declared", answers).undo
    assert undo is not None
    assert undo.parse({"published": {"number": 7}}) == {"published": Published(number=7)}
    assert undo.way == Way("withdraw", "published", "idempotent", undo.limits)


def test_an_undo_of_something_else_is_refused() -> None:
    with pytest.raises(
        ToolError, match=r"it answers <class 'int'>, and its undo withdraw takes .+Published.+: let the"
    ):
        declared(None, "declared", int)


def test_an_undo_that_is_not_declared_is_refused() -> None:
    async def withdraw(action: Action[None], published: Published) -> None: ...

    with pytest.raises(ToolError, match=r"its undo withdraw is not declared\. Write `@tools.undo\(\.\.\.\)` above it"):
        declared(None, withdraw)


def test_an_undo_says_how_a_second_one_is_harmless_and_takes_the_result_alone() -> None:
    tools = Tools[None](id="press")

    async def withdraw(action: Action[None], published: Published) -> None: ...

    async def withdraw_some(action: Action[None], published: Published, copies: int) -> None: ...

    async def withdraw_in_tx(tx: Tx[None], published: Published) -> None: ...

    with pytest.raises(ToolError, match=r"^undo withdraw: say how a second send is made harmless"):
        tools.undo()(withdraw)
    with pytest.raises(
        ToolError, match=r"^undo withdraw_some: it takes the effect's result, annotated, and nothing else"
    ):
        tools.undo(idempotent=True)(withdraw_some)
    with pytest.raises(ToolError, match=r"withdraw_in_tx: its first parameter must be annotated Action\[Deps\]"):
        tools.undo(idempotent=True)(withdraw_in_tx)  # pyright: ignore[reportArgumentType]
    tools.undo(idempotent=True)(withdraw)
    with pytest.raises(ToolError, match="two tools are called withdraw: rename one"):
        tools.undo(idempotent=True)(withdraw)


def test_ids_are_unambiguous_whatever_a_key_or_a_tenant_is() -> None:
    one = Tenant("default")
    assert keys.action_id(one, "publish", "2013-08") == "default/publish:2013-08"
    assert keys.action_id(one, "publish", "2013-08", 2) == "default/publish:2013-08~2"
    several = [
        keys.action_id(one, "publish", "a", 2),
        keys.action_id(one, "publish", "a~2"),
        keys.action_id(one, "publish", "a%7E2"),
        keys.action_id(Tenant("a/b:c"), "d", "e"),
        keys.action_id(Tenant("a"), "b", "c/d:e"),
    ]
    assert len(set(several)) == len(several)


@pytest.mark.parametrize("key", ["k", "k" * 200, "a/b: c~2#d?100%!", "é\u2028"])
def test_what_can_be_a_key(key: str) -> None:
    assert keys.check("publish", key) == key


@pytest.mark.parametrize("key", ["", "k" * 201, "a\0b", "a\nb", "\x7f", "\x9f", "\ud800"])
def test_what_cannot_be_a_key(key: str) -> None:
    with pytest.raises(InvalidInput, match=r"^The business key of publish .+ nothing was done\. Call it"):
        keys.check("publish", key)


async def other_names(tx: Tx[None], year: str) -> str | None:
    return None


async def of_an_action(action: Action[None], month: str, copies: int) -> str | None:
    return None


def at_once(tx: Tx[None], month: str, copies: int) -> str | None:
    return None


@pytest.mark.parametrize(
    ("requires", "words"),
    [
        (other_names, r"its requires takes \['year'\] and must take the tool's own parameters \['month', 'copies'\]"),
        (of_an_action, r"the first parameter of its requires is .*Action.* and must be Tx\[Deps\]"),
        (at_once, "its requires is not async: write `async def`"),
    ],
)
def test_a_wrong_precondition_is_refused_where_it_is_declared(requires: Any, words: str) -> None:
    tools = Tools[None](id="press")

    async def publish(action: Action[None], month: str, copies: int = 1) -> None: ...

    async def keep(tx: Tx[None], month: str, copies: int = 1) -> None: ...

    with pytest.raises(ToolError, match=f"^effect publish: {words}"):
        tools.effect(idempotent=True, requires=requires)(publish)
    with pytest.raises(ToolError, match=f"^transaction keep: {words}"):
        tools.transaction(requires=requires)(keep)


@pytest.mark.parametrize("names", [(), ("save", "save")])
def test_after_names_tools_each_once(names: tuple[str, ...]) -> None:
    with pytest.raises(ToolError, match="name one or more tools, each once"):
        after(*names)


@pytest.mark.parametrize("name", ["sav", "look"])
def test_after_names_a_transaction_or_effect_of_the_agent(name: str) -> None:
    tools = Tools[None](id="press")

    @tools.read
    async def look(ctx: RunContext[None]) -> None: ...

    @tools.transaction(requires=after(name))
    async def publish(tx: Tx[None]) -> None: ...

    with pytest.raises(ToolError, match=f"^Agent press: publish requires {name} before it, which is no transaction"):
        durable(
            Agent(TestModel(), name="press", deps_type=NoneType, toolsets=[tools]), version="1", deps=lambda _: None
        )


@pytest.mark.parametrize("phase", ["", " ", "x" * 61, "two\nlines"])
def test_a_phase_is_one_line_for_people(phase: str) -> None:
    tools = Tools[None](id="press")

    async def look(ctx: RunContext[None]) -> None: ...

    with pytest.raises(ToolError, match=r"^read look: its phase is .*: give 1 to 60 characters in one line\.$"):
        tools.read(phase=phase)(look)


@pytest.mark.parametrize("limit", ["queued_s_max", "running_s_max", "waiting_s_max", "held_s_max", "cancelling_s_max"])
@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_of_a_state_is_a_time(limit: Any, seconds: float) -> None:
    with pytest.raises(ValueError, match="Seconds in a state are above 0"):
        RunLimits(**{limit: seconds})


def test_an_answer_that_postgres_cannot_store_is_kept_as_far_as_it_can() -> None:
    tools = Tools[None](id="t")

    @tools.effect(at_most_once=True)
    async def send(action: Action[None], text: str) -> str:
        return text

    assert send is not None
    assert tools.specs["send"].keep("half \ud800, nul \0") == "half \ufffd, nul \ufffd"


@pytest.mark.parametrize("name", ["when", "binds", "edit"])
def test_what_an_approval_computes_takes_the_tools_own_parameters(name: str) -> None:
    tools = Tools[None](id="t")

    async def mistaken(order: str, amount: int) -> Any: ...

    terms: Any = {"policy": "large ones"} if name == "when" else {}
    approval = Approval[None, ...](by="role:a", **{name: mistaken}, **terms)
    with pytest.raises(
        ToolError, match=rf"{name} of its approval takes .+ and must take \['tx', .*'order', 'amount'\]"
    ):

        @tools.effect(at_most_once=True, approval=approval)
        async def refund(action: Action[None], order: str, amount: int) -> str: ...  # pyright: ignore
