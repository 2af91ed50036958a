"""Plans are drawn by the seed alone and can be told and played again; the judge names what is wrong."""

import itertools

import pytest

from app.crashtest.faults import ANY, KINDS, SEQUENCE_MAX, Catalogue, Fault, parse, plan, show
from app.crashtest.judge import repeated_steps
from transactions import InvalidInput

TRACE = Catalogue(("segment.begin.before_commit", "step.before_body", "step.before_body", *["relay.claim.x"] * 9), 2.0)
SEEN = ("step.before_body", "watchdog.before_recover")


def test_the_exhaustive_singles_are_every_point_at_every_passage_and_loops_at_their_first_ones() -> None:
    assert [str(fault) for (fault,) in TRACE.singles("kill")] == [
        "kill:segment.begin.before_commit:1",
        "kill:step.before_body:1",
        "kill:relay.claim.x:1",
        "kill:step.before_body:2",
        "kill:relay.claim.x:2",
        "kill:relay.claim.x:3",
    ]


def test_a_plan_depends_on_its_seed_alone() -> None:
    drawn = [plan(TRACE, SEEN, cases=80, seed=seed, kinds=KINDS) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {len(drawn[0]), len(drawn[2])} == {80}


def test_a_long_plan_has_all_singles_and_pairs_sequences_and_moments() -> None:
    found = plan(TRACE, SEEN, cases=100, seed=3, kinds=KINDS)
    for kind in KINDS:
        assert set(TRACE.singles(kind)) <= set(found)
    assert {len(faults) for faults in found} >= {1, 2, 3, SEQUENCE_MAX}
    assert {fault.point for fault in itertools.chain(*found)} >= {ANY, "moment", "watchdog.before_recover"}


def test_a_case_can_be_played_again_from_what_it_prints() -> None:
    for faults in plan(TRACE, SEEN, cases=50, seed=4, kinds=KINDS):
        assert parse(show(faults)) == faults
    assert Fault("stop", "step.before_body", 2).armed == "step.before_body:2:stop"


@pytest.mark.parametrize(
    "seed", ["burn:step.before_body:1", "kill:step", "kill::1", "stop:step.x:0", "kill:step.x:one"]
)
def test_a_seed_of_another_shape_is_refused_with_what_to_write(seed: str) -> None:
    with pytest.raises(InvalidInput, match="write kill:POINT:PASSAGE"):
        parse(seed)


def ran(*rows: tuple[int, int, int]) -> list[dict[str, int]]:
    return [{"segment": segment, "position": position, "generation": g} for segment, position, g in rows]


def test_a_step_in_flight_may_run_again_and_one_that_was_passed_may_not() -> None:
    died_in_step_1 = ran((0, 0, 1), (0, 1, 1), (0, 1, 2), (0, 2, 2))
    assert list(repeated_steps(died_in_step_1, width=1)) == []
    step_0_again = ran((0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 1, 2))
    assert [finding.kind for finding in repeated_steps(step_0_again, width=1)] == ["repeated"]
    assert list(repeated_steps(step_0_again, width=2)) == []  # both were asked for in one response
