"""`surefoot doctor`: what is set up, what is missing, what to do."""

import asyncio
import os

import typer

from app import wiring
from app.cli.session import told
from app.loading import load_agents, load_subscriptions
from app.settings import Settings
from app.surefoot import Surefoot
from steps.models import VARIABLE
from transactions import API, WORKER, Database, SurefootError, access, migrate
from transactions.database import check_server
from transactions.local import LocalPostgresError


def doctor() -> None:
    """Check agents, model, database, schema and workers; exit 1 if something needs attention."""
    problems = 0

    def say(good: bool, text: str) -> None:
        nonlocal problems
        problems += not good
        print(f"{'ok ' if good else 'BAD'}  {text}")

    with told():
        settings = Settings.from_env()
        agents = load_agents(settings.agents)
        given = wiring.all_subscriptions(settings, load_subscriptions(settings.consumers))
    say(True, f"agents: {', '.join(f'{agent.name} {agent.version}' for agent in agents) or 'none'}")
    consumers = ", ".join(f"{one.name} ({', '.join(one.topics)})" for one in given)
    say(True, f"consumers: {consumers or 'none (set SUREFOOT_CONSUMERS, or SUREFOOT_SMTP_URL for mail)'}")
    say(True, f"model: {os.environ.get(VARIABLE) or 'scripted (set ' + VARIABLE + ' for a real one)'}")
    mail = (settings.smtp_url or "").rpartition("@")[2]  # without user and password
    say(True, f"mail: {mail or 'none: mails wait until SUREFOOT_SMTP_URL is set on a worker'}")
    try:
        url, local = wiring.open_database(settings)
    except (SurefootError, LocalPostgresError) as error:
        say(False, str(error))
        raise typer.Exit(1) from None
    try:
        version = check_server(url)
        say(True, f"database: Postgres {version}, {'embedded in ' + str(local.data) if local else 'DATABASE_URL'}")
        current = not migrate.pending(url)
        say(current, "schema: current" if current else "schema: run `surefoot migrate`")
        if current:
            for good, text in asyncio.run(_database(url, settings)):
                say(good, text)
    except SurefootError as error:
        say(False, str(error))
    finally:
        if local is not None:
            local.leave()
    raise typer.Exit(1 if problems else 0)


async def _database(url: str, settings: Settings) -> list[tuple[bool, str]]:
    may = await access.of_login(url)
    if not may:
        return [(False, "login: it may neither serve the API nor be a worker: `surefoot migrate --api-login NAME`")]
    surefoot = Surefoot(url, [], settings=settings)
    database = Database(url, access=may[0])
    try:
        await surefoot.store.check()
        query = database.query
        live = await query(
            surefoot.tenant,
            "select count(*) as n from surefoot.worker_status where state = 'live' and lease_left > interval '0'"
            " and draining_at is null and (ready_at is not null or slots is null)",  # null: of the release before
        )
        unknown = await query(
            surefoot.tenant, "select count(*) as n from surefoot.unknown_actions where state = 'UNKNOWN'"
        )
        held = await query(surefoot.tenant, "select count(*) as n from surefoot.run_status where state = 'held'")
        dead = await query(
            surefoot.tenant, "select coalesce(sum(entries), 0) as n from surefoot.outbox_backlog where state = 'dead'"
        )
    finally:
        await database.close()
        await surefoot.close()
    can = [words for kind, words in ((API, "serve the API"), (WORKER, "be a worker")) if kind in may]
    return [
        (True, f"login: it may {' and '.join(can)}"),
        (True, f"artifacts: {', '.join(store.name for store in surefoot.store.stores) or 'in Postgres'}"),
        (
            live[0]["n"] > 0,
            f"workers: {live[0]['n']} live" + ("" if live[0]["n"] else ": start `surefoot serve` or `surefoot worker`"),
        ),
        (unknown[0]["n"] == 0, f"actions with unknown outcome: {unknown[0]['n']} (surefoot actions list)"),
        (held[0]["n"] == 0, f"held runs: {held[0]['n']} (surefoot.run_status)"),
        (dead[0]["n"] == 0, f"dead deliveries: {dead[0]['n']} (`surefoot outbox list --state dead`)"),
    ]
