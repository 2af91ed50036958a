"""Plans are drawn by the seed alone and can be told and played again; the judge names what is wrong."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.crashtest import judge as judging
from app.crashtest.faults import ANY, CONNECTION_KINDS, KINDS, WORKER_KINDS, Fault, parse, show
from app.crashtest.judge import End, Picture, Struck, Verdict, repeated_steps
from app.crashtest.plans import SEQUENCE_MAX, Catalogue, beyond, plan
from transactions import InvalidInput

PASSED = ("segment.begin.before_commit", "step.before_body", "step.before_body", *["relay.claim.x"] * 9)
TRACE = Catalogue(PASSED, 2.0, connections=2, persons=("run.start.",))


def test_the_exhaustive_singles_are_every_point_at_every_passage_and_loops_at_their_first_ones() -> None:
    assert [str(fault) for (fault,) in TRACE.singles("stop")] == [
        "stop:relay.claim.x:1",
        "stop:segment.begin.before_commit:1",
        "stop:step.before_body:1",
        "stop:relay.claim.x:2",
        "stop:step.before_body:2",
        "stop:relay.claim.x:3",
    ]


def test_people_and_workers_that_leave_are_only_killed() -> None:
    killed = {str(fault) for (fault,) in TRACE.singles("kill")}
    assert killed - {str(fault).replace("stop", "kill") for (fault,) in TRACE.singles("stop")} == {
        f"kill:{name}.{moment}_commit:1" for name in ("run.start", "worker.release") for moment in ("before", "after")
    }


def test_every_connection_goes_wrong_in_every_way() -> None:
    drawn = plan(TRACE, kind="exhaustive", cases=0, seed=1, kinds=CONNECTION_KINDS)
    every = {f"{kind}:connection:{n}" for kind in CONNECTION_KINDS for n in (1, 2)}
    assert {str(fault) for (fault,) in drawn} == every - {"refused:connection:2"}  # the first ones, until one is seen


def test_a_plan_depends_on_its_seed_alone() -> None:
    drawn = [plan(TRACE, kind="mixed", cases=80, seed=seed, kinds=KINDS) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {len(drawn[0]), len(drawn[2])} == {80}


def test_a_long_plan_has_singles_of_every_kind_and_pairs_sequences_and_moments() -> None:
    found = plan(TRACE, kind="mixed", cases=200, seed=3, kinds=KINDS)
    for kind in {*KINDS} - {"db-restart"}:
        assert {*TRACE.singles(kind)} <= {*found}
    assert {len(faults) for faults in found} >= {1, 2, 3, SEQUENCE_MAX}
    assert {fault.point for fault in itertools.chain(*found)} >= {ANY, "moment", "connection"}
    # Each is played alone, so there are few.
    assert 0 < len([faults for faults in found if any(fault.kind == "db-restart" for fault in faults)]) <= 11


def test_an_exhaustive_plan_has_every_single_fault_once() -> None:
    found = plan(TRACE, kind="exhaustive", cases=0, seed=3, kinds=KINDS)
    assert {*found} == {faults for kind in KINDS for faults in TRACE.singles(kind)}
    assert len({*found}) == len(found)


def test_moments_are_within_the_run() -> None:
    found = plan(TRACE, kind="moments", cases=50, seed=3, kinds=KINDS)
    assert {(fault.kind, fault.point) for (fault,) in found} == {("kill", "moment")}
    assert {fault.passage <= 2000 for (fault,) in found} == {True}


def test_what_is_found_on_the_way_is_struck_after_the_same_faults() -> None:
    assert show(beyond("effect.found.after_commit", parse("kill:effect.after_send:1"))) == (
        "kill:effect.after_send:1,kill:effect.found.after_commit:1"
    )


def test_a_case_can_be_played_again_from_what_it_prints() -> None:
    for faults in plan(TRACE, kind="mixed", cases=60, seed=4, kinds=KINDS):
        assert parse(show(faults)) == faults
    assert Fault("kill", "step.before_body", 2).armed == "step.before_body:2"
    for kind in {*WORKER_KINDS} - {"kill"}:
        assert Fault(kind, "step.before_body", 2).armed == "step.before_body:2:stop"


@pytest.mark.parametrize(
    "seed",
    [
        "burn:step.before_body:1",
        "kill:step",
        "kill::1",
        "stop:step.x:0",
        "kill:step.x:one",
        "kill:connection:1",
        "slow:step.before_body:1",
        "stop:run.start.before_commit:1",
        "stop:action.settle.before_commit:1",
    ],
)
def test_a_seed_of_another_shape_is_refused_with_what_to_write(seed: str) -> None:
    with pytest.raises(InvalidInput, match="write KIND:POINT:PASSAGE"):
        parse(seed)


def ran(*rows: tuple[int, int, int]) -> list[dict[str, int]]:
    return [
        {"segment": segment, "position": position, "generation": g, "of_model": False} for segment, position, g in rows
    ]


def test_a_step_in_flight_may_run_again_and_one_that_was_passed_may_not() -> None:
    died_in_step_1 = ran((0, 0, 1), (0, 1, 1), (0, 1, 2), (0, 2, 2))
    assert list(repeated_steps(died_in_step_1, width=1)) == []
    step_0_again = ran((0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 1, 2))
    assert [finding.kind for finding in repeated_steps(step_0_again, width=1)] == ["repeated"]
    assert list(repeated_steps(step_0_again, width=2)) == []  # both were asked for in one response
    step_0_again[1]["of_model"] = True
    assert [finding.kind for finding in repeated_steps(step_0_again, width=2)] == ["repeated"]


# The judge reads SQL: here its questions are answered from what a test says the database has.

CLEAN: Mapping[str, Sequence[Mapping[str, Any]]] = {
    judging._RUN: [{"state": "completed", "output": None, "event_seq": 2, "reason": None}],
    judging._ACTIONS: [],
    judging._DELIVERIES: [],
    judging._EVENTS: [{"seq": 1, "generation": 0}, {"seq": 2, "generation": 1}],
    judging._STEPS: [],
    judging._LEFT: [],
    judging._DESK: [],
    judging._BUDGET: [
        {"requests": 1, "input_tokens": 2, "output_tokens": 3, "calls": 1, "read": 2, "written": 3},
    ],
    judging._WIDTH: [{"width": 1}],
}
DONE = Picture("completed", "null", ("1/0:pay SUCCEEDED",), (1, 2), {'"pay"': 1}, {})
ASKED = {"action_id": "R/1/0:pay", "tool": "pay", "attempt": 1, "claimed": 7}
PAY = frozenset({"pay"})


async def verdict(
    picture: Picture = DONE, end: End = "ended", strikes: Sequence[Struck] = (), **answers: Sequence[Mapping[str, Any]]
) -> Verdict:
    told = dict(CLEAN) | {getattr(judging, f"_{name}"): rows for name, rows in answers.items()}

    async def query(sql: str, **_: object) -> Sequence[Mapping[str, Any]]:
        return told[sql]

    return await judging.judge(query, "R", picture, DONE, end=end, strikes=strikes, at_most_once=PAY)


def kinds(found: Verdict) -> tuple[str, set[str]]:
    return found.word, {finding.kind for finding in found.findings}


async def test_a_run_that_is_as_if_nobody_had_struck_is_recovered() -> None:
    assert await verdict() == Verdict("recovered")


async def test_an_execution_that_writes_after_a_later_one_had_begun_is_stale() -> None:
    events = [{"seq": 1, "generation": 2}, {"seq": 2, "generation": 1}]
    assert kinds(await verdict(EVENTS=events)) == ("failed", {"stale"})


async def test_counts_that_do_not_add_up_are_found() -> None:
    budget = [{"requests": 2, "input_tokens": 2, "output_tokens": 3, "calls": 1, "read": 2, "written": 3}]
    assert kinds(await verdict(BUDGET=budget)) == ("failed", {"budget"})


async def test_what_can_neither_be_asked_nor_repeated_needs_a_person_and_then_is_as_if_nobody_had_struck() -> None:
    struck = [Struck("kill", "effect.after_send", 7)]
    assert await verdict(strikes=struck, DESK=[ASKED]) == Verdict("on the desk")


async def test_nobody_is_asked_when_no_fault_fell_between_claim_and_receipt() -> None:
    struck = [Struck("kill", "effect.after_send", 6)]
    assert kinds(await verdict(strikes=struck, DESK=[ASKED])) == ("failed", {"stuck"})


async def test_nobody_is_asked_of_what_can_be_looked_up() -> None:
    struck = [Struck("kill", "effect.after_send", 7)]
    searchable = [{**ASKED, "tool": "publish"}]
    assert kinds(await verdict(strikes=struck, DESK=searchable)) == ("failed", {"stuck"})


@pytest.mark.parametrize(("times", "kind"), [(2, "double"), (0, "lost")])
async def test_the_desk_excuses_nothing_in_the_world(times: int, kind: str) -> None:
    struck = [Struck("kill", "effect.after_send", 7)]
    picture = replace(DONE, world={'"pay"': times} if times else {})
    assert kinds(await verdict(picture, strikes=struck, DESK=[ASKED])) == ("failed", {kind})


async def test_who_is_never_heard_leaves_it_stuck() -> None:
    struck = [Struck("kill", "effect.after_send", 7)]
    picture = replace(DONE, state="waiting", actions=("1/0:pay UNKNOWN",), model_calls=(1,))
    left = [{"what": "action R/1/0:pay is UNKNOWN"}]
    assert kinds(await verdict(picture, "stuck", struck, LEFT=left)) == ("failed", {"stuck"})


TWICE = Picture(DONE.state, DONE.output, DONE.actions, DONE.model_calls, {'"pay"': 2}, {})
SHOWN = {"action_id": "R/1/0:pay", "state": "SUCCEEDED", "receipts": 2, "gated": False, "approved": 0}


@pytest.mark.parametrize(
    ("kind", "point", "contradictions", "word"),
    [
        ("stop", "effect.before_send", 1, "residual"),
        ("partition", "effect.before_send", 1, "residual"),
        ("stop", "effect.before_send", 0, "failed"),  # a duplicate that nobody is shown
        ("kill", "effect.before_send", 1, "failed"),  # the dead do not wake
        ("stop", "effect.after_send", 1, "failed"),
    ],
)
async def test_only_a_shown_duplicate_of_one_who_woke_just_before_the_send_is_apart(
    kind: str, point: str, contradictions: int, word: str
) -> None:
    actions = [{**SHOWN, "contradictions": contradictions}]
    found = await verdict(TWICE, strikes=[Struck(kind, point, 1)], ACTIONS=actions)
    assert kinds(found) == (word, {"double", "repeated"})


NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
ADA = Struck("freeze", "effect.before_send", 1, "ada", NOON)


@pytest.mark.parametrize(
    ("worker_id", "seconds", "sent", "word"),
    [
        ("ada", -1, 2, "residual"),
        ("ada", 9, 2, "failed"),  # it claimed after it had been struck: it heeds no fence
        ("bob", -1, 2, "failed"),  # nobody had stopped this one
        ("ada", -1, 3, "failed"),  # what it had claimed is one send, and there are two too many
    ],
)
async def test_struck_from_outside_only_what_was_claimed_by_then_is_apart(
    worker_id: str, seconds: float, sent: int, word: str
) -> None:
    late = {
        "action_id": "R/1/0:pay",
        "attempt": 1,
        "worker_id": worker_id,
        "claimed_at": NOON + timedelta(seconds=seconds),
    }
    picture = replace(TWICE, world={'"pay"': sent})
    actions = [{**SHOWN, "contradictions": sent - 1}]
    found = await verdict(picture, strikes=[ADA], ACTIONS=actions, TOO_LATE=[late])
    assert kinds(found) == (word, {"double", "repeated"})
