"""The composition root: the one place where the arms meet, and where everything is built from settings."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from app import engine
from app.dispatcher import Dispatcher
from app.interrupts import Interrupts
from app.retention import Retention
from app.router import Router
from app.scheduler import Scheduler
from app.segment import Segments
from app.serving import application_version, serving
from app.settings import Settings
from app.sweeper import Sweeper
from app.watchdog import Watchdog
from app.worker import Worker
from outbox import (
    MailConsumer,
    Outcome,
    Relay,
    RelaySettings,
    Settled,
    SmtpServer,
    Subscription,
    WebhookConsumer,
    unique_subscriptions,
)
from steps import DurableAgent
from steps.bench import Bench
from steps.clock import SystemClock
from steps.effects import Effects
from transactions import ArtifactStore, Database, Limits, Wakeups, WorkerId, migrate, outbox
from transactions.actions import Ticket
from transactions.connecting import application_name
from transactions.lease import Lease, end_process
from transactions.local import LocalPostgres, join
from transactions.logins import Login
from transactions.outbox import Delivery

_DUTY_CONNECTIONS = 3
_HOLDS_A_LEASE = 4  # a watchdog that hangs in a statement, and then before the next one, has held for two


def open_database(settings: Settings) -> tuple[str, LocalPostgres | None]:
    """The URL to use, and the embedded server this process joined (leave it at the end), if no URL was given."""
    if settings.database_url is not None:
        return settings.database_url, None
    local = join(settings.home)
    return local.url, local


def migrate_database(url: str, agents: Sequence[DurableAgent[Any]], logins: Sequence[Login] = ()) -> None:
    """Bring the schema, and the tables that agents declare, up to date. logins: what each may from then on."""
    tables = [agent.tables for agent in agents if agent.tables is not None]
    migrate.migrate(url, engine_schema=engine.migrate, tables=tables, logins=logins)


class EffectConsumer:
    """Hands an effect's entry to the driver of effects, which keeps the claim and settles it in its own commits."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def take(self, delivery: Delivery) -> Outcome:
        assert delivery.action_id is not None
        ticket = Ticket(delivery.action_id, delivery.attempt, delivery.worker_id)
        await self._effects.start_when_there_is_room(ticket, delivery.tenant)
        return Settled()


def all_subscriptions(settings: Settings, given: Sequence[Subscription]) -> Sequence[Subscription]:
    """What a worker delivers to: what it was given, and mail and a webhook where there are any. Raises InvalidInput."""
    built_in: list[Subscription] = []
    if settings.smtp_url is not None:
        server = SmtpServer.from_url(settings.smtp_url, sender=settings.mail_from)
        built_in.append(Subscription("mail", MailConsumer(server), topics=("mail",)))
    if settings.webhook_url is not None:
        hook = WebhookConsumer(
            settings.webhook_url, secret=settings.webhook_secret or "", allow_private=settings.webhook_allow_private
        )
        built_in.append(Subscription("webhook", hook, topics=settings.webhook_topics))
    return unique_subscriptions([*built_in, *given])


def build_worker(
    url: str,
    agents: Sequence[DurableAgent[Any]],
    settings: Settings,
    *,
    subscriptions: Sequence[Subscription] = (),
    store: ArtifactStore | None = None,
    end: Callable[[str], None] = end_process,
) -> Worker:
    """A worker with everything it needs, not started. Raises InvalidInput for settings that cannot work.

    store: where artifacts are kept; by default as the settings say.
    end: called with the reason once this worker may not act any more; it must not return.
    """
    clock = SystemClock()
    worker_id = WorkerId(f"{socket.gethostname()[:40]}-{os.getpid()}-{clock.new_id()[:12]}")
    limits, name = Limits().within(settings.lease_s), application_name(worker_id)
    database = Database(url, limits, application=name)
    duties = Database(url, replace(limits, pool_connections=_DUTY_CONNECTIONS), application=name)
    version = application_version(agents, settings.version)
    wakeups = Wakeups(url, limits, application=name)
    lost = _unless(left := threading.Event(), end)
    lease = Lease(url, worker_id, settings.lease_s, lost, settings.still_s)
    by_name = {agent.name: agent for agent in agents}
    store = store or ArtifactStore.from_setting(settings.artifacts, url, lease_s=settings.lease_s, application=name)
    bench = Bench(database, by_name, worker_id, wakeups, lease.check, lost, store)
    effects = Effects(bench)
    subscribed, draining = all_subscriptions(settings, subscriptions), asyncio.Event()
    interrupts = Interrupts(duties, settings.watchdog_s)
    served = serving(by_name, version)
    dispatcher = Dispatcher(duties, wakeups, settings.queue_poll_s, lease.check)
    return Worker(
        settings=settings,
        database=database,
        agents=by_name,
        subscriptions=subscribed,
        worker_id=worker_id,
        version=version,
        lease=lease,
        wakeups=wakeups,
        effects=effects,
        store=store,
        sweeper=Sweeper(store, settings.artifacts_sweep_s, lease.check),
        retention=Retention(database, settings.keep, lease.check, settings.retention_s),
        relay=_relay(bench, effects, subscribed, settings),
        watchdog=_watchdog(duties, worker_id, version, settings, lease.check),
        dispatcher=dispatcher,
        scheduler=Scheduler(duties, settings.watchdog_s, lease.check),
        interrupts=interrupts,
        segments=Segments(
            bench, effects, interrupts, clock, settings.stalls_max, draining.is_set, served, dispatcher.freed
        ),
        draining=draining,
        end=lost,
        duties=duties,
        left=left,
    )


def _relay(bench: Bench, effects: Effects, subscribed: Sequence[Subscription], settings: Settings) -> Relay:
    return Relay(
        bench.database,
        {outbox.EFFECT: EffectConsumer(effects), **{one.name: one.consumer for one in subscribed}},
        agents=list(bench.agents),
        worker_id=bench.worker_id,
        wakeups=bench.wakeups,
        still_mine=bench.still_mine,
        settings=RelaySettings(poll_s=settings.relay_poll_s),
    )


def _unless(left: threading.Event, end: Callable[[str], None]) -> Callable[[str], None]:
    """`end`, which does nothing once a worker has left by its own will."""

    def lost(why: str) -> None:
        if not left.is_set():
            end(why)

    return lost


def _watchdog(
    duties: Database, worker_id: WorkerId, version: str, settings: Settings, still_mine: Callable[[], None]
) -> Watchdog:
    hold_s = settings.lease_s / _HOLDS_A_LEASE
    router = Router(duties, version, settings.version_grace_s, hold_s)
    return Watchdog(
        duties, worker_id, version, settings.watchdog_s, settings.stalls_max, still_mine, router, hold_s=hold_s
    )
