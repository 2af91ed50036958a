"""Each state machine says the same five times: enum, transitions, CHECK constraint, the database's table, diagram."""

import re
from enum import StrEnum
from pathlib import Path

import psycopg
import pytest

from transactions.states import ACTION_TRANSITIONS, MACHINES, RUN_TRANSITIONS, ActionState, Machine, RunState

README = Path(__file__).parents[2] / "transactions" / "README.md"
BEGINNING = "[*]"  # as the diagrams and the database's table say it
each_machine = pytest.mark.parametrize("machine", MACHINES, ids=[machine.table for machine in MACHINES])


def values(states: type[StrEnum]) -> set[str]:
    return {state.value for state in states}


@each_machine
def test_the_table_of_transitions_names_every_state_and_no_other(
    machine: Machine,
) -> None:
    assert set(machine.transitions) == set(machine.states)
    assert {to for targets in machine.transitions.values() for to in targets} <= set(machine.states)
    assert machine.starts <= set(machine.states)


@each_machine
def test_every_state_can_be_reached_and_left_or_is_an_end(
    machine: Machine,
) -> None:
    reached = set(machine.starts)
    while more := {to for state in reached for to in machine.transitions[state]} - reached:
        reached |= more
    assert reached == set(machine.states)


def test_ended_and_settled_are_the_states_that_nothing_leaves() -> None:
    assert {state for state in RunState if state.ended} == {s for s in RunState if not RUN_TRANSITIONS[s]}
    assert {state for state in ActionState if state.settled} == {s for s in ActionState if not ACTION_TRANSITIONS[s]}


def checked(definition: str) -> set[str] | None:
    """The values of a constraint that lists the states, else None."""
    match = re.fullmatch(r"CHECK \(\(state = ANY \(ARRAY\[(.+)\]\)\)\)( NOT VALID)?", definition)
    return set(re.findall(r"'([^']+)'", match[1])) if match else None


@each_machine
def test_the_database_refuses_any_other_state(machine: Machine, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "select pg_get_constraintdef(oid) from pg_constraint where conrelid = %s::regclass and contype = 'c'",
            [f"surefoot.{machine.table}"],
        ).fetchall()
    lists = [found for (definition,) in rows if (found := checked(definition)) is not None]
    assert lists == [values(machine.states)]


@each_machine
def test_the_database_has_these_transitions_and_no_other(machine: Machine, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "select from_state, to_state from surefoot.transitions() where machine = %s", [machine.table]
        ).fetchall()
    assert len(rows) == len(set(rows))
    assert set(rows) == arrows(machine)


def test_the_database_knows_no_other_machine_and_enforces_each(database_url: str) -> None:
    tables = {machine.table for machine in MACHINES}
    with psycopg.connect(database_url) as connection:
        known = connection.execute("select distinct machine from surefoot.transitions()").fetchall()
        enforced = connection.execute(
            "select tgrelid::regclass::text, tgname from pg_trigger where tgfoid = 'surefoot.keep_transitions'::regproc"
        ).fetchall()
    assert {machine for (machine,) in known} == tables
    wanted = {(f"surefoot.{table}", name) for table in tables for name in ("keep_transitions", "keep_first_state")}
    assert set(enforced) == wanted


def diagrams(text: str) -> list[set[tuple[str, str]]]:
    """The arrows of each state diagram of a Markdown text."""
    blocks = re.findall(r"```mermaid\nstateDiagram-v2\n(.+?)```", text, flags=re.DOTALL)
    return [set(re.findall(r"^\s*(\[\*\]|\w+) --> (\w+)", block, flags=re.MULTILINE)) for block in blocks]


def arrows(machine: Machine) -> set[tuple[str, str]]:
    """What the diagram and the database's table have to say."""
    moves = {(str(state), str(to)) for state, targets in machine.transitions.items() for to in targets}
    return moves | {(BEGINNING, str(state)) for state in machine.starts}


@each_machine
def test_the_diagram_shows_these_transitions_and_no_other(machine: Machine) -> None:
    drawn = [
        diagram
        for diagram in diagrams(README.read_text())
        if {state for arrow in diagram for state in arrow} - {BEGINNING} == values(machine.states)
    ]
    assert drawn == [arrows(machine)]


def test_there_is_a_diagram_for_every_machine_and_no_other() -> None:
    assert len(diagrams(README.read_text())) == len(MACHINES)


def test_the_comparison_sees_one_arrow_too_many() -> None:
    text = README.read_text().replace("    queued --> running", "    completed --> running\n    queued --> running", 1)
    assert arrows(MACHINES[0]) in diagrams(README.read_text())
    assert arrows(MACHINES[0]) not in diagrams(text)
