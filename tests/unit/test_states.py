"""Each state machine says the same four times: enum, transition table, CHECK constraint, diagram."""

import re
from enum import StrEnum
from pathlib import Path

import psycopg
import pytest

from transactions.states import (
    ACTION_TRANSITIONS,
    APPROVAL_TRANSITIONS,
    DELIVERY_TRANSITIONS,
    RUN_TRANSITIONS,
    ActionState,
    ApprovalState,
    DeliveryState,
    RunState,
    Transitions,
)

MACHINES: list[tuple[type[StrEnum], Transitions, str]] = [
    (RunState, RUN_TRANSITIONS, "runs"),
    (ActionState, ACTION_TRANSITIONS, "actions"),
    (ApprovalState, APPROVAL_TRANSITIONS, "approvals"),
    (DeliveryState, DELIVERY_TRANSITIONS, "outbox_deliveries"),
]
README = Path(__file__).parents[2] / "transactions" / "README.md"
each_machine = pytest.mark.parametrize(("states", "transitions", "table"), MACHINES, ids=[m[2] for m in MACHINES])


def values(states: type[StrEnum]) -> set[str]:
    return {state.value for state in states}


@each_machine
def test_the_table_of_transitions_names_every_state_and_no_other(
    states: type[StrEnum], transitions: Transitions, table: str
) -> None:
    assert set(transitions) == set(states)
    assert {to for targets in transitions.values() for to in targets} <= set(states)


@each_machine
def test_every_state_can_be_reached_and_left_or_is_an_end(
    states: type[StrEnum], transitions: Transitions, table: str
) -> None:
    starts = {"queued", "PREPARED", "pending", "parked"}
    reached = {state for state in states if state.value in starts}
    while more := {to for state in reached for to in transitions[state]} - reached:
        reached |= more
    assert reached == set(states)


def test_ended_and_settled_are_the_states_that_nothing_leaves() -> None:
    assert {state for state in RunState if state.ended} == {s for s in RunState if not RUN_TRANSITIONS[s]}
    assert {state for state in ActionState if state.settled} == {s for s in ActionState if not ACTION_TRANSITIONS[s]}


def checked(definition: str) -> set[str] | None:
    """The values of a constraint that lists the states, else None."""
    match = re.fullmatch(r"CHECK \(\(state = ANY \(ARRAY\[(.+)\]\)\)\)", definition)
    return set(re.findall(r"'([^']+)'", match[1])) if match else None


@each_machine
def test_the_database_refuses_any_other_state(
    states: type[StrEnum], transitions: Transitions, table: str, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "select pg_get_constraintdef(oid) from pg_constraint where conrelid = %s::regclass and contype = 'c'",
            [f"surefoot.{table}"],
        ).fetchall()
    lists = [found for (definition,) in rows if (found := checked(definition)) is not None]
    assert lists == [values(states)]


def diagrams(text: str) -> list[set[tuple[str, str]]]:
    """The arrows of each state diagram of a Markdown text."""
    blocks = re.findall(r"```mermaid\nstateDiagram-v2\n(.+?)```", text, flags=re.DOTALL)
    return [set(re.findall(r"^\s*(\w+) --> (\w+)", block, flags=re.MULTILINE)) for block in blocks]


def arrows(transitions: Transitions) -> set[tuple[str, str]]:
    return {(str(state), str(to)) for state, targets in transitions.items() for to in targets}


@each_machine
def test_the_diagram_shows_these_transitions_and_no_other(
    states: type[StrEnum], transitions: Transitions, table: str
) -> None:
    drawn = [
        diagram
        for diagram in diagrams(README.read_text())
        if {state for arrow in diagram for state in arrow} == values(states)
    ]
    assert drawn == [arrows(transitions)]


def test_there_is_a_diagram_for_every_machine_and_no_other() -> None:
    assert len(diagrams(README.read_text())) == len(MACHINES)


def test_the_comparison_sees_one_arrow_too_many() -> None:
    text = README.read_text().replace("    queued --> running", "    completed --> running\n    queued --> running", 1)
    assert arrows(RUN_TRANSITIONS) not in diagrams(text)
