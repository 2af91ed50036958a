"""One fault of every kind on the errands, and what the matrix has found in the product, each with the case that did."""

import asyncio

import pytest

from app.crashtest.faults import KINDS, parse
from app.crashtest.outcome import Outcome
from app.crashtest.place import database_server
from app.crashtest.report import Report
from app.crashtest.session import Options, crashtest
from app.crashtest.subjects import agents_with, bundled

PAID = "kill:effect.after_send:6"  # it has paid, and nobody can be asked whether it has
NOT_PAID = "kill:effect.before_send:10"
# A person looks into the world and says what happened; and it is as if nobody had struck.
ON_THE_DESK = (PAID, f"{NOT_PAID},kill:action.settle.after_commit:1")
CASES = {
    "people are killed starting and deciding": "kill:run.start.after_commit:1,kill:approval.decide.before_commit:1",
    "a worker is killed while it leaves": "kill:worker.release.before_commit:1",
    "a payment is not answered": ON_THE_DESK[0],
    "a payment is not made, and who says so is killed": ON_THE_DESK[1],
    "the next to look up is killed as well": "kill:effect.after_send:2,kill:effect.found.after_commit:1",
    "a worker is stopped in a step": "stop:step.before_body:3",
    "a worker is frozen until another has died": (
        "freeze:tool.transaction.before_commit:1,kill:segment.begin.after_commit:1"
    ),
    "a worker is cut off from the database": "partition:segment.turn.before_commit:2",
    "the database ends": "db-restart:segment.turn.after_commit:3",
    "a service never answers": "silence:connection:2",
    "a service closes the connection": "reset:connection:3",
    "a service has done it and does not say so in time": "late:connection:4",
    "nobody listens at first": "refused:connection:1",
    "a service is slow": "slow:connection:1",
    "a service has too much to do": "rate-limited:connection:1",
    "a service has done it and says it has failed": "server-error:connection:4",
    # A read was given up at the first broken connection, and its run with it.
    "an answer to a read is lost": "lost-response:connection:6",
    # What a mail server said was kept as it was, and a NUL character kept its delivery from ever being settled.
    "a service answers garbage": "garbage:connection:1,garbage:connection:3",
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """On a server of their own, because one of them ends it."""
    options = Options(replay=[parse(seed) for seed in CASES.values()])
    folder = tmp_path_factory.mktemp("errands")
    with database_server(None, in_memory=True) as server:
        agents = agents_with("errands", None)
        return asyncio.run(
            crashtest(server, folder, lambda f, p: bundled("errands", f, p), agents=agents, options=options)
        )


@pytest.fixture
def outcome(played: Report, seed: str) -> Outcome:
    return next(outcome for outcome in played.outcomes if outcome.seed == seed)


def test_there_is_one_of_every_kind() -> None:
    assert {fault.kind for seed in CASES.values() for fault in parse(seed)} == {*KINDS}


@pytest.mark.parametrize("seed", CASES.values(), ids=CASES)
def test_the_errands_are_done_as_if_nothing_had_happened(outcome: Outcome, seed: str) -> None:
    assert [str(finding) for finding in outcome.verdict.findings] == []
    assert outcome.verdict.word == ("on the desk" if seed in ON_THE_DESK else "recovered")
    struck = [strike.fault for strike in outcome.strikes if strike.unfinished]
    assert {*struck} == {*outcome.case.faults}
