"""Everything the environment can say, read once, with its unit and its default."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from transactions import InvalidInput
from transactions.retention import FOREVER, KEEP_S_MAX, Keep


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one process. Times in seconds."""

    database_url: str | None = None
    home: Path = field(default_factory=lambda: Path(".surefoot"))
    agents: str | None = None
    consumers: str | None = None
    smtp_url: str | None = field(default=None, repr=False)
    mail_from: str = "surefoot@localhost"
    # Entries of these topics go to this URL, signed with the secret; several secrets are separated by spaces.
    webhook_url: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    webhook_topics: tuple[str, ...] = ()
    webhook_allow_private: bool = False
    # An outage of the database shorter than the lease ends no worker. A process that is gone is seen at once on its own
    # machine; elsewhere its runs go on after this.
    lease_s: float = 45.0
    # A worker whose event loop stood still for so long ends: whatever stops it would keep all runs there for ever.
    still_s: float = 120.0
    watchdog_s: float = 1.0
    queue_poll_s: float = 0.2
    relay_poll_s: float = 1.0
    runs_at_once: int = 50
    stalls_max: int = 5
    drain_s: float = 20.0
    # Where the bytes of artifacts are: the store to write to first, and others to read from. None: Postgres.
    artifacts: str | None = None
    artifacts_sweep_s: float = 3600.0
    # What distinguishes this build from others with the same versions of agents.
    version: str | None = None
    # A version without a worker for so long is gone: a newer one takes its place, what only it can read is held.
    version_grace_s: float = 60.0
    # How long what is kept, and how often is looked for what is older.
    keep: Keep = field(default_factory=Keep)
    retention_s: float = 60.0

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> "Settings":
        """From the environment. Raises InvalidInput naming the variable that is wrong."""
        env = os.environ if env is None else env
        grace_s = _number(env, "SUREFOOT_VERSION_GRACE_S", 60.0, at_least=0.1)
        return cls(
            database_url=env.get("DATABASE_URL") or None,
            home=Path(env.get("SUREFOOT_HOME") or ".surefoot").expanduser(),
            agents=env.get("SUREFOOT_AGENTS") or None,
            consumers=env.get("SUREFOOT_CONSUMERS") or None,
            smtp_url=env.get("SUREFOOT_SMTP_URL") or None,
            mail_from=env.get("SUREFOOT_MAIL_FROM") or cls.__dataclass_fields__["mail_from"].default,
            **_webhook(env),
            lease_s=_number(env, "SUREFOOT_LEASE_S", 45.0, at_least=1.0),
            still_s=_number(env, "SUREFOOT_STILL_S", 120.0, at_least=1.0),
            watchdog_s=_number(env, "SUREFOOT_WATCHDOG_S", 1.0, at_least=0.05),
            queue_poll_s=_number(env, "SUREFOOT_QUEUE_POLL_S", 0.2, at_least=0.05),
            relay_poll_s=_number(env, "SUREFOOT_RELAY_POLL_S", 1.0, at_least=0.05),
            runs_at_once=_count(env, "SUREFOOT_RUNS_AT_ONCE", 50),
            stalls_max=_count(env, "SUREFOOT_STALLS_MAX", 5),
            drain_s=_number(env, "SUREFOOT_DRAIN_S", 20.0, at_least=0.0),
            artifacts=env.get("SUREFOOT_ARTIFACTS") or None,
            artifacts_sweep_s=_number(env, "SUREFOOT_ARTIFACTS_SWEEP_S", 3600.0, at_least=1.0),
            version=_build(env),
            version_grace_s=grace_s,
            keep=_keep(env, workers_at_least=grace_s),
            retention_s=_number(env, "SUREFOOT_RETENTION_S", 60.0, at_least=1.0),
        )


def _build(env: Mapping[str, str]) -> str | None:
    text = env.get("SUREFOOT_VERSION") or None
    if text is not None and not re.fullmatch(r"[A-Za-z0-9._+-]{1,100}", text):
        raise InvalidInput(
            f"SUREFOOT_VERSION={text!r}: name the build with 1 to 100 letters, digits and ._+-, such as a commit."
        )
    return text


def _webhook(env: Mapping[str, str]) -> dict[str, Any]:
    """All that a webhook needs, or nothing: with half of it entries would wait without a word."""
    names = ("SUREFOOT_WEBHOOK_URL", "SUREFOOT_WEBHOOK_SECRET", "SUREFOOT_WEBHOOK_TOPICS")
    url, secret, topics = (env.get(name, "").strip() for name in names)
    wanted = tuple(dict.fromkeys(topic for topic in re.split(r"[,\s]+", topics) if topic))
    if missing := [name for name, value in zip(names, (url, secret, wanted), strict=True) if not value]:
        if len(missing) < len(names):
            raise InvalidInput(f"{missing[0]} is not set: a webhook needs {', '.join(names)}; set it, or unset all.")
        return {}
    private = env.get("SUREFOOT_WEBHOOK_ALLOW_PRIVATE") or "0"
    if private not in ("0", "1"):
        raise InvalidInput(
            f"SUREFOOT_WEBHOOK_ALLOW_PRIVATE={private!r}: write 1 to allow private addresses and http://."
        )
    return {
        "webhook_url": url,
        "webhook_secret": secret,
        "webhook_topics": wanted,
        "webhook_allow_private": private == "1",
    }


def _keep(env: Mapping[str, str], *, workers_at_least: float) -> Keep:
    """`SUREFOOT_KEEP_RUNS_S` and so on: seconds, or `forever`.

    workers_at_least: for so long the row of a worker that ended says that its version may be on its way up again.
    """
    said: dict[str, float] = {}
    for kind in fields(Keep):
        name = f"SUREFOOT_KEEP_{kind.name.upper()}_S"
        if (text := env.get(name)) == "forever":
            said[kind.name] = FOREVER
        elif text:
            said[kind.name] = _number(env, name, FOREVER, at_least=1.0)
            if said[kind.name] > KEEP_S_MAX:
                raise InvalidInput(f"{name}={text!r}: give at most {KEEP_S_MAX:.0f}, or `forever`.")
    keep = Keep(**said)
    return replace(keep, workers=max(keep.workers, workers_at_least))


def _number(env: Mapping[str, str], name: str, default: float, *, at_least: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not at_least <= value < float("inf"):
        raise InvalidInput(f"{name}={text!r}: give a number of at least {at_least:g}, or unset it for {default:g}.")
    return value


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    value = _number(env, name, float(default), at_least=1)
    if not value.is_integer():
        raise InvalidInput(f"{name}={env[name]!r}: give a whole number of at least 1, or unset it for {default}.")
    return int(value)
