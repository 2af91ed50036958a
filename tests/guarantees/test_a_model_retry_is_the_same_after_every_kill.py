"""A tool that sends its call back to the model to correct: killed anywhere, the model is told and counted the same."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai.exceptions import ModelRetry

from steps.calls import Call
from steps.journal import Done
from tests.killed import killed_at_each, left_alone, spread
from tests.stage import Stage

SCRIPT = [
    [("whole", {"number": -1}), ("picky_note", {"text": "saved!"})],
    [("whole", {"number": 1}), ("picky_note", {"text": "saved"})],
]
KILLS = 10


def test_a_model_retry_is_the_same_after_every_kill(stage: Stage) -> None:
    expected, passages = left_alone(stage, SCRIPT)
    assert expected["notes"] == ["saved"]
    retries = [part for message in expected["messages"] for part in message if part[3] == "retried"]
    assert [part[4] for part in retries] == [
        "-1 is below zero: give another",
        "write it without an exclamation mark",
    ]
    for point, found in killed_at_each(stage, SCRIPT, spread(passages, KILLS)):
        assert found == expected, f"killed at {point}"


def test_control_a_retry_that_is_recorded_as_an_error_is_another_one_after_a_kill(stage: Stage) -> None:
    stage.announce()
    run_id = stage.script(*SCRIPT)
    assert stage.working("segment.turn.after_commit:2", broken=retries_are_errors).until_it_dies() == -9
    stage.working(broken=retries_are_errors)
    stage.until_state(run_id, "failed")


def retries_are_errors() -> None:
    as_value = Call.as_value

    async def raising(call: Call, body: Callable[[], Awaitable[Any]], keep: Callable[[Any], Awaitable[Any]]) -> Done:
        done = await as_value(call, body, keep)
        if isinstance(done.value, dict) and "retry" in done.value:
            raise ModelRetry(str(done.value["retry"]))
        return done

    Call.as_value = raising
