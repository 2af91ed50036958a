"""What every connection to Postgres is opened with: bounds for waiting, for idling, and for a line that says nothing.

A machine that is gone, or a network that drops packets, closes no connection. Who waits there finds out by the
kernel's own probes and by its patience with what is not acknowledged; both ends are told to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transactions.ids import WorkerId

_NAME_CHARS_MAX = 63  # Postgres cuts what is longer
_OURS = "surefoot "
_PROBES = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the pool, of every connection and of every transaction, in seconds and connections."""

    pool_connections: int = 20
    connect_s: int = 5
    pool_wait_s: float = 10
    # Below the lease: what a frozen worker has locked is free again before anyone takes over its runs.
    idle_in_transaction_s: float = 10
    transaction_s: float = 8
    # Below the lease as well: whoever is connected to nobody finds out while it can still connect anew.
    silent_s: float = 15

    def within(self, lease_s: float) -> "Limits":
        """The same limits, with transactions and silences that end well before a lease of this length."""
        limits = replace(self, silent_s=min(self.silent_s, lease_s / 3))
        if self.idle_in_transaction_s < lease_s:
            return limits
        return replace(limits, idle_in_transaction_s=lease_s * 0.8, transaction_s=lease_s * 0.6)


def application_name(worker_id: WorkerId) -> str:
    """What a worker's sessions are called at the server, so that they can be ended when it is dead.

    The statement `sessions_of_dead` builds the same name.
    """
    return _OURS + worker_id[len(_OURS) - _NAME_CHARS_MAX :]


def parameters(
    limits: Limits, *, application: str, role: str | None = None, options: bool = True, **settings: object
) -> Mapping[str, Any]:
    """Keyword arguments for `psycopg.connect`. `settings` are the session's, with their units as Postgres takes them.

    On a Unix socket what is said of the network does nothing. options: False where a pooler may be in between, which
    refuses them: then nothing is said of the session, and the server goes by its own settings.
    """
    silent_ms = int(limits.silent_s * 1000)
    every_s = max(1, int(limits.silent_s / (_PROBES + 2)))
    idle_s = max(1, int(limits.silent_s) - _PROBES * every_s)
    keeping = {"keepalives_idle": idle_s, "keepalives_interval": every_s, "keepalives_count": _PROBES}
    session = {
        "idle_in_transaction_session_timeout": int(limits.idle_in_transaction_s * 1000),
        "tcp_user_timeout": silent_ms,
        **{f"tcp_{name}": value for name, value in keeping.items()},
        **({} if role is None else {"role": role}),
        **settings,
    }
    sent = {"options": " ".join(f"-c {name}={value}" for name, value in session.items())} if options else {}
    return {
        "connect_timeout": limits.connect_s,
        "application_name": application,
        "keepalives": 1,
        "tcp_user_timeout": silent_ms,
        **keeping,
        **sent,
    }
