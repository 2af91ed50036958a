"""One relay in a process of its own, as a worker has it: `python -m app.crashtest.outbox_relay` in a forked process.

From the environment: DATABASE_URL, and SUREFOOT_OUTBOX_RUN as JSON: {"sinks": {name: file}, "forgets": bool,
"local": name or null, "in_flight_max": number}. It ends by being killed.
"""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

from app import machine
from app.crashtest.outbox_sink import Sink
from app.router import Router
from app.watchdog import Watchdog
from outbox import Consumer, Delivery, LocalConsumer, Relay, RelaySettings
from steps.clock import SystemClock
from transactions import Database, Limits, Session, Wakeups, WorkerId, workers
from transactions.lease import Lease, end_process, now

VARIABLE = "SUREFOOT_OUTBOX_RUN"
LEASE_S = 20.0
_WATCHDOG_S = 0.3
_INSERT = "insert into public.outbox_effects (entry_id, key, seq) values (%s, %s, %s)"


async def write(session: Session, delivery: Delivery) -> None:
    """One more row; nothing in the table keeps a second one of an entry out."""
    assert isinstance(delivery.payload, dict)
    connection = await session.connection()
    await connection.exec_driver_sql(_INSERT, (delivery.entry_id, delivery.payload["key"], delivery.payload["seq"]))


def consumers(said: dict[str, Any]) -> dict[str, Consumer]:
    sinks: dict[str, Consumer] = {
        name: Sink(Path(file), forgets=said["forgets"]) for name, file in said["sinks"].items()
    }
    return sinks | ({said["local"]: LocalConsumer(write)} if said["local"] else {})


async def main() -> None:
    url, said = os.environ["DATABASE_URL"], json.loads(os.environ[VARIABLE])
    database = Database(url, Limits().within(LEASE_S))
    worker_id = WorkerId(f"relay-{os.getpid()}-{SystemClock().new_id()[:12]}")
    lease, wakeups = Lease(url, worker_id, LEASE_S, end_process), Wakeups(url)
    relay = Relay(
        database,
        consumers(said),
        agents=(),
        worker_id=worker_id,
        wakeups=wakeups,
        still_mine=lease.check,
        settings=RelaySettings(in_flight_max=said["in_flight_max"]),
    )
    registered_at = now()
    async with database.all_tenants("worker.register") as session:
        await workers.register(
            session,
            worker_id=worker_id,
            version="outbox run",
            host=socket.gethostname(),
            machine=machine.machine_id(),
            pid=os.getpid(),
            pid_start=machine.pid_start(os.getpid()) or "unknown",
            lease_s=LEASE_S,
            consumers=relay.consumers,
        )
    lease.start(registered_at)
    await wakeups.start()
    router = Router(database, "outbox run", grace_s=LEASE_S)
    watchdog = Watchdog(database, worker_id, "outbox run", _WATCHDOG_S, 5, lease.check, router)
    await asyncio.gather(relay.run(), watchdog.run())


if __name__ == "__main__":
    asyncio.run(main())
