"""Two relay processes that are killed: each entry to each consumer, in the order of its key, and no effect twice."""

from pathlib import Path

import pytest

from app.crashtest import outbox_run
from app.crashtest.outbox_run import Options, Result
from app.crashtest.outbox_sink import Take, findings
from transactions.failpoints import ARMED

# The first relay dies by itself too, with what it has taken and not yet said: there is a redelivery in every run.
DIES = {ARMED: "relay.after_take:5"}


async def played(url: str, folder: Path, options: Options) -> Result:
    outbox_run.prepare(url)
    return await outbox_run.play(url, folder, options)


async def test_each_entry_once_to_each_consumer_in_order_while_relays_are_killed(
    database_url: str, tmp_path: Path
) -> None:
    result = await played(database_url, tmp_path, Options(600, 20, kill_every_s=1.0, env=DIES))
    assert result.findings == []
    assert result.kills > 0
    assert result.takes > 2 * 600


async def test_a_consumer_that_forgets_what_it_took_is_found(database_url: str, tmp_path: Path) -> None:
    result = await played(database_url, tmp_path, Options(200, 20, env=DIES, forgets=True))
    assert any("was done 2 times" in finding for finding in result.findings)


async def test_a_relay_that_forgets_the_order_of_a_key_is_found(database_url: str, tmp_path: Path) -> None:
    before = ["tests.crash.outbox_controls:no_order"]
    result = await played(database_url, tmp_path, Options(200, 20, before=before))
    assert any("was taken when number" in finding for finding in result.findings)


TAKES = [Take("a1", "a", 1, True), Take("b1", "b", 1, True), Take("a2", "a", 2, True)]
ENTRIES_OF_BOTH = frozenset({"a1", "a2", "b1"})


@pytest.mark.parametrize(
    ("takes", "finding"),
    [
        (TAKES, None),
        ([*TAKES[:1], Take("a1", "a", 1, False), *TAKES[1:]], None),
        (TAKES[:2], "c: a2 was not done"),
        ([*TAKES, Take("a2", "a", 2, True)], "c: a2 was done 2 times"),
        ([*TAKES, Take("a1", "a", 1, False)], "c: a1 was taken after number 2 of a"),
        ([TAKES[2], *TAKES[:2]], "c: a2 was taken when number 0 was the last"),
    ],
)
def test_the_judge(takes: list[Take], finding: str | None) -> None:
    found = findings({"c": takes}, ENTRIES_OF_BOTH)
    assert found[:1] == ([] if finding is None else [finding])
