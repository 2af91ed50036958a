"""`surefoot.run_timeline` tells in order what ran, was replayed, reused or verified, by which generation and worker."""

from collections.abc import Callable
from typing import Any

from steps import calling, calls
from steps.journal import Done
from tests.stage import Stage

SCRIPT = [
    [("note", {"text": "saved"})],
    [("gated_send", {"text": "the report"}), ("tell", {"text": "it is published"})],
]
# What happened to the run of `killed_three_times`, with the number of the worker that did it.
STORY = [
    ("step", "scripted__model.request", "ran", 0),
    ("receipt", "note", "transaction", 0),  # and worker 0 was killed before it could record the step
    ("step", "scripted__model.request", "replayed", 1),
    ("step", "note", "reused", 1),
    ("step", "scripted__model.request", "ran", 1),
    ("step", "gated_send", "deferred", 1),
    ("step", "tell", "deferred", 1),
    ("wait", "tell", "go", None),
    ("approval", "gated_send", "approved", None),
    ("wait", "gated_send", "go", None),
    ("attempt", "gated_send", "answered", 2),  # and worker 2 was killed before it could record the answer
    ("verification", "gated_send", "found", 3),
    ("receipt", "gated_send", "verification", 3),
    ("delivery", "gated_send to effect", "delivered", 3),
    ("step", "gated_send", "verified", 3),
    ("receipt", "tell", "transaction", 3),
    ("step", "tell", "ran", 3),
    ("step", "scripted__model.request", "ran", 3),
    ("delivery", "tell#mail:0 to mail", "delivered", 3),
]


def test_the_timeline_alone_tells_what_happened(stage_with_mail: Stage) -> None:
    rows, pids = killed_three_times(stage_with_mail)
    assert told(rows, pids) == STORY
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    ours = [row for row in rows if row["what"] in ("step", "verification", "receipt") or row["name"] == "segment.began"]
    generations = [row["generation"] for row in ours]
    assert generations == sorted(generations)
    assert {row["generation"]: pid(row) for row in ours} == {row["generation"]: pid(row) for row in reversed(ours)}
    assert {pid(row) for row in ours} == set(pids)


def test_control_a_recorder_that_always_says_ran_tells_another_story(stage_with_mail: Stage) -> None:
    rows, pids = killed_three_times(stage_with_mail, broken=always_says_ran)
    wrong = [(told, true) for told, true in zip(told(rows, pids), STORY, strict=True) if told != true]
    assert wrong == [
        (("step", "note", "ran", 1), ("step", "note", "reused", 1)),
        (("step", "gated_send", "ran", 3), ("step", "gated_send", "verified", 3)),
    ]


def killed_three_times(
    stage: Stage, broken: Callable[[], None] | None = None
) -> tuple[list[dict[str, Any]], list[int]]:
    """The timeline of a run, and the pids of its workers: killed after a commit, while it waited, and after a send."""
    workers = [stage.working("tool.transaction.after_commit", broken=broken)]
    run_id = stage.script(*SCRIPT)
    workers[0].until_it_dies()
    workers.append(stage.working(broken=broken))
    stage.until_state(run_id, "waiting")
    workers[1].kill()
    stage.approve(run_id)
    workers.append(stage.working("effect.after_send", broken=broken))
    workers[2].until_it_dies()
    workers.append(stage.working(broken=broken))
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    rows = stage.rows("select * from surefoot.run_timeline where run_id = %s order by line", run_id)
    return rows, [worker.pid for worker in workers]


def told(rows: list[dict[str, Any]], pids: list[int]) -> list[tuple[str, str, str, int | None]]:
    """The rows but for events and the ledger's, the mail last: it goes out whenever the relay comes to it."""
    story = [
        (row["what"], short(row["name"]), row["how"], None if row["worker_id"] is None else pids.index(pid(row)))
        for row in rows
        if row["what"] not in ("event", "action")
    ]
    return sorted(story, key=lambda line: line[1].endswith("to mail"))


def pid(row: dict[str, Any]) -> int:
    return int(row["worker_id"].split("-")[-2])


def short(name: str) -> str:
    """Without the run, the turn and the place in it."""
    return name.rpartition("/")[2].partition(":")[2] if "/" in name else name


def always_says_ran() -> None:
    settled = calls.settled_value

    def says_ran(row: Any, **how: Any) -> Done | None:
        done = settled(row, **how)
        return None if done is None else Done(done.value)

    calls.settled_value = calling.settled_value = says_ran
