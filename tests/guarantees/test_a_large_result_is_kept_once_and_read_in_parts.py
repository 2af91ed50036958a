"""Results above the limit of a message: an artifact each, wherever the worker dies, which the model reads in parts."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.scripted import ARTIFACT
from tests.killed import carry_to_its_end
from tests.kit import until
from tests.stage import Stage
from transactions.artifacts import ARTIFACT_BYTES_MAX

LINES = 6000
TURNS = [
    [("look_long", {"lines": LINES})],
    [
        ("read_artifact", {"name": ARTIFACT, "version": 1, "start": 5, "length": 6}),
        ("search_artifact", {"name": ARTIFACT, "version": 1, "text": f"LINE {LINES - 1}"}),
        ("read_artifact", {"name": ARTIFACT, "version": 9}),
    ],
    [("lined_note", {"text": "a", "lines": LINES})],
    [("place_long", {"text": "b", "lines": LINES})],
    [("read_artifact", {"name": ARTIFACT, "version": 1, "start": 2, "length": 7})],
]
POINTS = [
    "result.keep.before_commit",
    "result.keep.after_commit",
    "tool.transaction.before_commit",
    "tool.transaction.after_commit",
    "effect.answered.before_commit",
    "effect.answered.after_commit",
    "step.after_record:6",
]


@pytest.fixture(params=["postgres", "folder"])
def kept(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> Stage:
    """A stage whose artifacts are in Postgres, or in a folder."""
    if request.param == "folder":
        (tmp_path / "store").mkdir()
        stage.env["SUREFOOT_ARTIFACTS"] = (tmp_path / "store").as_uri()
    return stage


def artifacts(stage: Stage, run_id: str) -> list[dict[str, Any]]:
    return stage.rows(
        "select name, version, action_id, result_of, media_type, size_bytes, sha256 from surefoot.artifacts"
        " where run_id = %s order by result_of",
        run_id,
    )


def check(stage: Stage, run_id: str) -> None:
    """One version of each result; the model was shown the head of each, and what it asked to read."""
    kept = artifacts(stage, run_id)
    calls = [f"{run_id}/{turn}/0:{tool}" for turn, tool in ((1, "look_long"), (3, "lined_note"), (4, "place_long"))]
    assert [(row["result_of"], row["version"], row["name"]) for row in kept] == [
        (call, 1, f"result/{call}") for call in calls
    ]
    told = stage.told(run_id)
    assert [tool for tool, _, _ in told] == [tool for turn in TURNS for tool, _ in turn]
    look, part, found, missing, note, placed, lines = told
    for one in (look, note, placed):
        assert len(one[2]) < 4000
        assert "'read_with': 'read_artifact or search_artifact'" in one[2]
    assert "'text': '0\\nline'" in part[2]
    assert "'more': False" in found[2]
    assert f"line {LINES - 1}" in found[2]
    assert missing[1] == "failed"
    assert missing[2] == f"No artifact 'result/{calls[0]}' version 9."
    assert "thing " in lines[2]
    ledger = stage.rows(
        "select a.action_id, a.result, r.result as receipt from surefoot.actions a join surefoot.receipts r"
        " using (action_id) where a.run_id = %s order by a.turn",
        run_id,
    )
    assert [row["result"]["sha256"] for row in ledger] == [row["sha256"] for row in kept[1:] or []]
    assert all(row["result"] == row["receipt"] for row in ledger)
    messages = stage.rows("select message::text as text from surefoot.model_messages where run_id = %s", run_id)
    assert max(len(row["text"]) for row in messages) < 30_000


def test_left_alone(kept: Stage) -> None:
    kept.working()
    run_id = kept.script(*TURNS)
    carry_to_its_end(kept, run_id)
    check(kept, run_id)


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere(stage: Stage, tmp_path: Path, point: str) -> None:
    (tmp_path / "store").mkdir()
    stage.env["SUREFOOT_ARTIFACTS"] = (tmp_path / "store").as_uri()
    mortal = stage.working(point)
    run_id = stage.script(*TURNS)
    carry_to_its_end(stage, run_id, mortal)
    check(stage, run_id)


def keeps_every_time() -> None:
    """Broken: the same bytes for the same call are another version each time, and a read does not look first."""
    from sqlalchemy import text

    from transactions import artifacts
    from transactions.statements import load

    nothing = text("select null as name where :result_of || :sha256 is null and false")
    setattr(artifacts, "_ARTIFACTS", {**load("artifacts"), "result_of": nothing})  # noqa: B010  its own process


def test_a_worker_that_does_not_look_whether_it_was_kept_is_found(stage: Stage) -> None:
    mortal = stage.working("result.keep.after_commit", broken=keeps_every_time)
    run_id = stage.script(TURNS[0])
    mortal.until_it_dies()
    stage.working(broken=keeps_every_time)
    stage.until_state(run_id, "completed")
    assert [row["version"] for row in artifacts(stage, run_id)] == [1, 2]


def test_an_undo_is_given_the_whole_result(stage: Stage) -> None:
    _, api = stage.serve()
    run_id = stage.script([("place_long", {"text": "b", "lines": LINES})])
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert api.post(f"/runs/{run_id}/undo", json={"reason": "test"}).status_code == 202
    until("it is undone", lambda: any(sent.text.startswith("take back") for sent in stage.outside.sent))
    [undo] = [sent.text for sent in stage.outside.sent if sent.text.startswith("take back")]
    assert undo.startswith(f"take back {LINES} lines to thing ")
    assert undo.endswith(f"line {LINES - 1}")


def test_a_result_beyond_all_limits_fails_with_words(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("look_huge", {"mebibytes": ARTIFACT_BYTES_MAX // 1024**2 + 1})])
    stage.until_state(run_id, "completed")
    said = "look_huge returned over 67108864 bytes: write it where it belongs and return a reference"
    assert stage.told(run_id) == [["look_huge", "failed", said]]
    assert artifacts(stage, run_id) == []


def test_tools_to_read_are_offered_only_where_there_is_something_to_read(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("look", {"text": "a"})], [("read_artifact", {"name": "none", "version": 1})])
    stage.until_state(run_id, "completed", "failed")
    assert "Unknown tool name" in json.dumps(stage.told(run_id))
    run_id = stage.script(
        [("save", {"name": "../note", "text": "hello"})], [("read_artifact", {"name": "../note", "version": 1})]
    )
    stage.until_state(run_id, "completed")
    assert "'text': 'hello'" in stage.told(run_id)[-1][2]
