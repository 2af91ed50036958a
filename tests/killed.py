"""Kill a scripted run at many points, and compare what became of it with the same run left alone."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.kit import Process, until
from tests.stage import Call, Stage, records_passages

# Their results are numbers that the database or the outside gives, other ones in each run.
NUMBERED = ("note", "picky_note", "gated_note", "send", "gated_send")


def left_alone(stage: Stage, turns: Sequence[list[Call]]) -> tuple[dict[str, Any], list[str]]:
    """What becomes of the run, and every failpoint that it passes, as `name:n`, in order."""
    worker = stage.working(broken=records_passages)
    run_id = stage.script(*turns)
    carry_to_its_end(stage, run_id)
    worker.kill()
    seen: Counter[str] = Counter()
    passages = []
    for name in stage.passages(worker):
        seen[name] += 1
        passages.append(f"{name}:{seen[name]}")
    return result(stage, run_id), passages


def spread(passages: Sequence[str], kills: int) -> list[str]:
    """So many of the passages, evenly spread, the last one among them."""
    return [passages[len(passages) * n // kills - 1] for n in range(1, kills + 1)]


def killed_at_each(
    stage: Stage, turns: Sequence[list[Call]], points: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What becomes of a run of its own for each point: its worker dies there, and another one goes on."""
    for point in points:
        worker = stage.working(point)
        run_id = stage.script(*turns)
        carry_to_its_end(stage, run_id, worker)
        yield point, result(stage, run_id)


def carry_to_its_end(stage: Stage, run_id: str, mortal: Process | None = None) -> None:
    """Approve whatever the run asks for; start another worker when `mortal` has died, which it must."""
    others: list[Process] = []

    def look() -> bool:
        if mortal is not None and not others and mortal.exit_code() is not None:
            assert mortal.until_it_dies() == -9
            others.append(stage.working())
        state = stage.state(run_id)
        assert state not in ("failed", "held"), stage.rows("select reason from surefoot.runs where run_id = %s", run_id)
        if state == "waiting":
            for approval in stage.approvals(run_id):
                if approval["state"] == "pending":
                    stage.approve(run_id)
        return state == "completed" and (mortal is None or bool(others))

    until("the run completes, whoever dies", look)
    stage.until_quiet(run_id)
    for other in others:
        other.kill()


def result(stage: Stage, run_id: str) -> dict[str, Any]:
    """Everything that must not depend on who died when; ids, times and given numbers left out."""
    mine = "from surefoot.{} where run_id = %s order by {}"
    messages = stage.rows(f"select message {mine.format('model_messages', 'seq')}", run_id)
    steps = f"select distinct segment, position, replace(name, run_id, '') as name {mine.format('steps', '1, 2')}"
    actions = (
        f"select replace(action_id, run_id, '') as action, state, request {mine.format('actions', 'turn, position')}"
    )
    return {
        "messages": [said(row["message"]) for row in messages],
        "usage": stage.rows("select usage, turns, segment from surefoot.runs where run_id = %s", run_id),
        "model calls": stage.rows(f"select turn, segment {mine.format('model_calls', 'turn')}", run_id),
        "steps": stage.rows(steps, run_id),
        "actions": stage.rows(actions, run_id),
        "notes": [note["text"] for note in stage.notes(run_id)],
        "sent": [sent.text for sent in stage.outside.sent if sent.reference.startswith(run_id)],
    }


def said(message: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The parts of a message; the model's last word repeats what it was told, and says nothing new."""
    return [
        (part["part_kind"], part.get("tool_name"), part.get("args"), part.get("outcome"), content(part))
        for part in message["parts"]
    ]


def content(part: dict[str, Any]) -> Any:
    given = part.get("tool_name") in NUMBERED and part.get("outcome") == "success"
    return None if given or part["part_kind"] == "text" else part.get("content")
