"""`surefoot.run_timeline` in words: for each process that took the run up, what it ran, replayed, found or verified."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from app.demo.judge import KillFacts

SQL = """
select t.at, t.what, t.name, t.how, t.detail, w.pid
  from surefoot.run_timeline t left join surefoot.workers w using (worker_id)
 where t.run_id = :run_id order by t.line"""
WIDTH = 118
_INDENT = " " * 22
MODEL = "the model"
# How a thing came about, in the words of the story.
ASKED, RAN, COMMITTED, REPLAYED = "asked", "ran", "committed", "replayed from the record, not run again:"
REUSED, LEFT = "found already committed, not done again:", "left waiting:"
_STEP_WORDS: Mapping[str, str] = MappingProxyType(
    {"ran": RAN, "replayed": REPLAYED, "reused": REUSED, "deferred": LEFT}
)
_EVENT_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "run.queued": "queued",
        "run.waiting": "the run waits",
        "run.completed": "completed",
        "run.failed": "failed",
        "run.held": "held",
        "segment.lost": "begun anew from the run's own record",
    }
)


@dataclass(slots=True)
class _Block:
    """What one process did in one go: phrases in the order of their first word, each with its objects, counted."""

    at: datetime
    who: str
    phrases: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def add(self, phrase: str, thing: str = "") -> None:
        things = self.phrases.setdefault(phrase, {})
        things[thing] = things.get(thing, 0) + 1

    def lines(self) -> Iterator[str]:
        for phrase, things in self.phrases.items():
            told = ", ".join(_counted(thing, count) for thing, count in things.items() if thing)
            yield f"{phrase} {told}".strip()


def in_words(rows: Sequence[Mapping[str, Any]], kills: Iterable[KillFacts], *, mailed: str = "the team") -> list[str]:
    """The lines of the story of one run, and its kills between them. `mailed`: who is."""
    blocks = [*_blocks(rows, mailed), *(_Block(kill.at, "") for kill in kills)]
    killed = {kill.at: f"-- pid {kill.pid} killed (SIGKILL): {kill.failpoint} --" for kill in kills}
    start = rows[0]["at"]
    lines: list[str] = []
    for block in sorted(blocks, key=lambda block: block.at):
        if not block.who and block.at in killed:
            lines.append(f"{_INDENT}{killed[block.at]}")
            continue
        head = f"{(block.at - start).total_seconds():7.1f} s  {block.who:11} "
        for line in block.lines():
            lines += textwrap.wrap(line, WIDTH, initial_indent=head, subsequent_indent=_INDENT + "  ")
            head = _INDENT
    return lines


def _blocks(rows: Sequence[Mapping[str, Any]], mailed: str) -> list[_Block]:
    committed = {row["name"] for row in rows if row["what"] == "receipt" and row["how"] == "transaction"}
    blocks: list[_Block] = []
    for row in rows:
        who = "" if row["pid"] is None else f"pid {row['pid']}"
        for phrase, thing in _phrases(row, committed, mailed):
            begins = row["name"] == "segment.began"
            if begins or not blocks or blocks[-1].who != who:
                blocks.append(_Block(row["at"], who))
            blocks[-1].add(phrase, thing)
    return blocks


def _phrases(row: Mapping[str, Any], committed: set[str], mailed: str) -> Iterator[tuple[str, str]]:
    """What a row of the timeline says, if it adds something to the story."""
    name, how = str(row["name"]), str(row["how"])
    match row["what"]:
        case "event" if name == "segment.began":
            yield "took it up" if '"execution": 1}' in row["detail"] else "took it over", ""
        case "event" if name in _EVENT_WORDS:
            yield _EVENT_WORDS[name], ""
        case "step" if name.endswith("__model.request"):
            yield (ASKED if how == "ran" else REPLAYED), MODEL if how == "ran" else "model request"
        case "step" if how in _STEP_WORDS:
            action = name.split(":", 2)[2]
            if how != "ran" or action not in committed:  # a commit is told by its receipt
                yield _STEP_WORDS[how], _tool(action)
        case "receipt" if how == "transaction":
            yield COMMITTED, _tool(name)
        case "receipt" if how == "answer":
            yield "had an answer to", _tool(name)
        case "receipt" if how == "verification":
            yield "recorded as done, and not sent again:", _tool(name)
        case "receipt" if how == "person":
            yield "known from a person to have happened:", _tool(name)
        case "attempt":
            yield "sent", _tool(name)
        case "verification":
            yield f"asked whether it had happened: {how};", _tool(name)
        case "approval" if how != "pending":
            yield f"{how}: {_tool(name)} ({row['detail']})", ""
        case "delivery" if how == "delivered" and name.endswith(" to mail"):
            yield f"mailed {mailed}", ""
        case _:
            return


def _tool(action_id: str) -> str:
    return action_id.rpartition(":")[2]


def _counted(thing: str, count: int) -> str:
    if count == 1:
        return thing
    return f"{thing} {count} times" if thing == MODEL else f"{count} {thing}s" if " " in thing else f"{count} x {thing}"
