"""`surefoot outbox list|show|redrive|discard|topics|unsubscribe`."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.session import ask
from transactions.backlog import Standing

group = typer.Typer(no_args_is_help=True, help="What is not delivered: look, redrive, discard.")

Id = Annotated[str, typer.Argument(metavar="ENTRY", help="the entry's id")]
Consumer = Annotated[str | None, typer.Option(help="only the delivery to this consumer")]
_TIME = "%Y-%m-%d %H:%M:%S %Z"


@group.command("list")
def list_deliveries(
    state: Annotated[Standing | None, typer.Option(help="only such ones; default: what is not delivered")] = None,
    topic: Annotated[str | None, typer.Option(help="only entries of this topic")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
) -> None:
    """What is not delivered, oldest first: since when, why, and what to do."""
    rows = ask(lambda who: who.deliveries(standing=state, topic=topic, limit=limit))
    for row in rows:
        key = "" if row["key"] is None else f"  key {row['key']}"
        print(f"{row['entry_id']}\n  {row['topic']} to {row['consumer']}{key}")
        _print_standing(row)
    if not rows:
        print("nothing waits to be delivered" if state is None and topic is None else "no such delivery")


@group.command("show")
def show(entry_id: Id) -> None:
    """An entry, its payload and how it stands with each consumer."""
    found = ask(lambda who: who.entry(entry_id))
    of_run = "" if found["run_id"] is None else f" of run {found['run_id']}"
    key = "" if found["key"] is None else f", number {found['key_seq']} of key {found['key']}"
    print(f"{found['entry_id']}\n  {found['topic']}{of_run}{key}, put at {found['put_at'].strftime(_TIME)}")
    print(f"  {json.dumps(found['payload'], ensure_ascii=False)}")
    for row in found["deliveries"]:
        print(f"to {row['consumer']}")
        _print_standing(row)
        if row["taken_at"] is not None:
            receipt = json.dumps(row["receipt"], ensure_ascii=False)
            print(f"  taken by its consumer at {row['taken_at'].strftime(_TIME)}, receipt {receipt}")


def _print_standing(row: Mapping[str, Any]) -> None:
    since = "" if row["since"] is None else f" since {row['since'].strftime(_TIME)}"
    why = "" if row["why"] is None else f": {row['why']}"
    print(f"  {row['standing']}{since}, attempt {row['attempt']} of {row['attempts_max']}{why}")
    if row["what_to_do"] is not None:
        print(f"  to do: {row['what_to_do']}")


@group.command("redrive")
def redrive(entry_id: Id, consumer: Consumer = None) -> None:
    """Deliver what is dead again, from now and with fresh attempts."""
    done = ask(lambda who: who.redrive(entry_id, consumer=consumer))
    print(f"redriven: {entry_id} to {', '.join(done)} is due now")


@group.command("discard")
def discard(
    entry_id: Id,
    reason: Annotated[str, typer.Option(help="why; it is kept")],
    consumer: Consumer = None,
) -> None:
    """Give what is dead up for good, or a pending delivery that is named (--consumer); the next of its key goes."""
    done = ask(lambda who: who.discard(entry_id, reason=reason, consumer=consumer))
    print(f"discarded: {entry_id} to {', '.join(done)} will not be delivered")


@group.command("topics")
def topics() -> None:
    """Who is subscribed to which topic, within which limits, and whether a live worker has that consumer."""
    rows = ask(lambda who: who.topics())
    for row in rows:
        said = ["a dead entry is passed" if row["passes_dead"] else "a dead entry blocks its key"]
        if row["in_flight_max"] is not None:
            said.append(f"at most {row['in_flight_max']} at once")
        if row["per_second_max"] is not None:
            said.append(f"at most {row['per_second_max']:g} a second")
        if row["paused_until"] is not None:
            said.append(f"paused until {row['paused_until'].strftime(_TIME)}: {row['paused_why']}")
        if not row["is_served"]:
            said.append("no live worker has it")
        print(f"{row['topic']} to {row['consumer']}: {'; '.join(said)}")
    if not rows:
        print("nobody is subscribed: an entry goes to the consumer of its topic's own name")


@group.command("unsubscribe")
def unsubscribe(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER")],
) -> None:
    """Have no further entry of TOPIC go to CONSUMER, which is gone for good."""
    ask(lambda who: who.unsubscribe(topic, consumer))
    print(
        f"unsubscribed: {consumer} gets no further entry of {topic}, until a worker that has it starts; "
        "what was put before stays (`surefoot outbox list`)"
    )
