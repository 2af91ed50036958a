"""A consumer with a file of its own, which knows each entry it has taken; and what the files say afterwards."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outbox import Delivered, Delivery, Outcome

BUSY_S = 10.0


@dataclass(frozen=True, slots=True)
class Take:
    """One call of a consumer, in the order of its calls; `effect`: it did something, for it was the first."""

    entry_id: str
    key: str
    seq: int
    effect: bool


class Sink:
    """Notes every take in `file`, and does its effect once for an entry, however often that comes.

    forgets: it does it each time, which is the negative control. The file outlives a killed process; it is not synced,
    since no machine is switched off here. Each process has a Sink of its own.
    """

    def __init__(self, file: Path, *, forgets: bool = False) -> None:
        self.file = file
        self._known = "0" if forgets else "exists (select 1 from takes where entry_id = ?1)"
        self._connection = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = off")
        self._connection.execute(
            "create table if not exists takes (n integer primary key autoincrement, entry_id text, key text,"
            " seq integer, effect integer)"
        )
        self._connection.execute("create index if not exists takes_entry on takes (entry_id)")

    async def take(self, delivery: Delivery) -> Outcome:
        assert isinstance(delivery.payload, dict)
        self._connection.execute(
            f"insert into takes (entry_id, key, seq, effect) values (?1, ?2, ?3, not {self._known})",  # noqa: S608  ours
            (delivery.entry_id, delivery.payload["key"], delivery.payload["seq"]),
        )
        return Delivered()

    def takes(self) -> Sequence[Take]:
        rows = self._connection.execute("select entry_id, key, seq, effect from takes order by n").fetchall()
        return [Take(entry_id, key, seq, bool(effect)) for entry_id, key, seq, effect in rows]

    def close(self) -> None:
        self._connection.close()


def findings(takes: Mapping[str, Sequence[Take]], entries: frozenset[str]) -> Sequence[str]:
    """What is wrong, by consumer: an entry that is missing or was done twice, a key out of its order."""
    found: list[str] = []
    for consumer, taken in sorted(takes.items()):
        done: dict[str, int] = defaultdict(int)
        last: dict[str, int] = defaultdict(int)
        for take in taken:
            done[take.entry_id] += take.effect
            if take.seq < last[take.key]:
                found.append(f"{consumer}: {take.entry_id} was taken after number {last[take.key]} of {take.key}")
            elif take.seq > last[take.key] + 1:
                found.append(f"{consumer}: {take.entry_id} was taken when number {last[take.key]} was the last")
            last[take.key] = max(last[take.key], take.seq)
        found += [f"{consumer}: {entry} was not done" for entry in sorted(entries - done.keys())]
        found += [f"{consumer}: {entry} was done {n} times" for entry, n in sorted(done.items()) if n != 1]
    return found
