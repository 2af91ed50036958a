"""Consumers of an application: found, loaded before anything is launched, announced, and delivered to."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest
from sqlalchemy import text

from app import Surefoot
from app.loading import load_subscriptions
from outbox import Delivery, LocalConsumer, Subscription
from tests.bad_input.sentences import rows, sentence
from tests.forked import call, surefoot
from transactions import InvalidInput, Session

HEAD = """
from outbox import Delivered, Subscription


class Takes:
    async def take(self, delivery):
        return Delivered()

"""
WRONG = {
    "an import that fails": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'."),
    "a subscription that is wrong": (
        "consumer = Subscription('tickets', Takes(), topics=[])",
        "failed to load: Subscription tickets: name at least one topic, and each of them once.",
    ),
    "a consumer that is no subscription": (
        "consumer = Takes()",
        "is a Takes: make it `Subscription(name, consumer, topics=[...])`.",
    ),
    "two of one name": (
        "consumer = [Subscription('a', Takes(), topics=['t']), Subscription('a', Takes(), topics=['u'])]",
        "Two consumers are called 'a': rename one.",
    ),
    "the name of the built-in one": (
        "consumer = Subscription('mail', Takes(), topics=['mail'])",
        "Two consumers are called 'mail': rename one.",
    ),
}


@pytest.fixture(scope="module")
def url(clone: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with clone("consumers") as url:
        yield url


@pytest.mark.parametrize("case", WRONG)
def test_one_that_cannot_be_loaded_stops_the_start_with_its_name(case: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "wrong_consumer.py").write_text(HEAD + dedent(WRONG[case][0]))
    env = {
        "DATABASE_URL": url,
        "PYTHONPATH": str(tmp_path),
        "SUREFOOT_CONSUMERS": "wrong_consumer:consumer",
        "SUREFOOT_SMTP_URL": "smtp://127.0.0.1:1",
    }
    said = sentence(surefoot("worker", env=env))
    assert WRONG[case][1] in said
    if "are called" not in said:
        assert said.startswith("Consumer wrong_consumer:consumer ")
    assert rows(url, "select worker_id from surefoot.workers") == []


def test_one_that_is_installed_is_found_and_a_reference_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "good_consumer.py").write_text(HEAD + "tickets = Subscription('tickets', Takes(), topics=['a', 'b'])\n")
    information = tmp_path / "good_consumer-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: good-consumer\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[surefoot.consumers]\ntickets = good_consumer:tickets\n")
    ended = surefoot("doctor", env={"DATABASE_URL": url, "PYTHONPATH": str(tmp_path)})
    assert "ok   consumers: tickets (a, b)" in ended.stdout
    with pytest.raises(InvalidInput, match="SUREFOOT_CONSUMERS names 'good_consumer': write module:ATTRIBUTE"):
        load_subscriptions("good_consumer")


async def note(session: Session, delivery: Delivery) -> None:
    """What an application does when a run it started is over."""
    assert isinstance(delivery.payload, dict)
    told = {
        "run": delivery.payload["run_id"],
        "state": delivery.payload["state"],
        "key": delivery.payload["idempotency_key"],
    }
    await session.execute(text("insert into public.told (run_id, state, key) values (:run, :state, :key)"), told)


def serve_until_told(url: str) -> None:
    subscription = Subscription("app", LocalConsumer(note), topics=["run.cancelled"], in_flight_max=2, passes_dead=True)

    async def go() -> None:
        surefoot = Surefoot(url, [], subscriptions=[subscription])
        async with surefoot.lifespan():
            [run_id] = [row["run_id"] for row in await surefoot.runs()]
            await surefoot.cancel(str(run_id))
            async with asyncio.timeout(30):
                while not rows(url, "select run_id from public.told"):  # noqa: ASYNC110  another task writes it
                    await asyncio.sleep(0.05)

    asyncio.run(go())


def test_the_application_that_started_a_run_is_told_and_topics_can_be_listed_and_ended(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("create table public.told (run_id text, state text, key text)")
        owner.execute("grant insert on public.told to surefoot_app")
    rows(
        url,
        "insert into surefoot.agents (tenant, name, version, input_schema) values ('default', 'report', '1', '{}')"
        " returning name",
    )
    [run] = rows(url, "select surefoot.start_run('report', '{}', 'first') as run_id")
    env = {"DATABASE_URL": url}
    assert surefoot("outbox", "topics", env=env).stdout.startswith("nobody is subscribed")
    call(serve_until_told, url)
    assert rows(url, "select * from public.told") == [{"run_id": run["run_id"], "state": "cancelled", "key": "first"}]
    assert surefoot("outbox", "topics", env=env).stdout == (
        "run.cancelled to app: a dead entry is passed; at most 2 at once; no live worker has it\n"
    )
    ended = surefoot("outbox", "unsubscribe", "run.cancelled", "app", env=env)
    assert ended.stdout.startswith(
        "unsubscribed: app gets no further entry of run.cancelled, until a worker that has it"
    )
    assert sentence(surefoot("outbox", "unsubscribe", "run.cancelled", "app", env=env)) == (
        "'app' is not subscribed to 'run.cancelled': see `surefoot outbox topics`."
    )
    assert rows(url, "select ended_by from surefoot.subscriptions") == [{"ended_by": "unauthenticated"}]
